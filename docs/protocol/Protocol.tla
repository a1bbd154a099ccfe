------------------------------ MODULE Protocol ------------------------------
(***************************************************************************)
(* The protocol of pakka: what src/pakka/coordinator does, step by step.    *)
(* README.md beside this file maps every name to the code.                  *)
(*                                                                         *)
(* A crash needs no step of its own. A driver that crashed is one that does *)
(* nothing more, and the next one may start at any time. One that does go   *)
(* on after that is a zombie.                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    LastEpoch,      \* epochs are 0..LastEpoch
    SlotCount,      \* slots of an epoch are 1..SlotCount
    DriverCount,    \* drivers are 1..DriverCount; while another may start, the one that owns the pipeline may fail
    ExtraAttempts,  \* how many second attempts at a slot Spark starts, in all
    StoreLosses,    \* how often the state store is deleted, in all
    Broken          \* "none", or the one step that is left out or moved

(* README.md says what each of them does. A name that is not known must not pass for the true protocol. *)
ASSUME Broken \in {
    "none", "no-raise", "no-fence-in-store", "state-before-fence", "checkpoint-before-fence", "settle-before-raise",
    "no-commit-in-recovery", "no-abort-in-recovery", "raise-once", "no-owner-check",
    "held-before-raise", "replay-unasked", "slots-uncounted",
    "commit-before-decide", "abort-on-unknown", "abort-after-decide", "unknown-is-success", "no-ledger",
    "epoch-in-parts", "abort-any-fence", "acknowledge-before-commit", "no-sweep"}

VARIABLES
    store,          \* the state store: fence, owner, committed, decision of each epoch
    sink,           \* each sink: fence, staged and visible records, ledger
    acked,          \* Spark's commit log: the newest acknowledged epoch
    driver,         \* each driver: where it is, and what it remembers
    tasks,          \* attempts that still run, or whose report waits for their driver
    extra,          \* second attempts started so far
    losses,         \* how often the state store was deleted so far
    past            \* history: what was ever decided, and whether an older fence had an effect after a newer one

vars == <<store, sink, acked, driver, tasks, extra, losses, past>>

Epochs  == 0..LastEpoch
Slots   == 1..SlotCount
Drivers == 1..DriverCount
Sinks   == {"aggregated", "slotwise"}
None    == -1

Max(a, b) == IF a > b THEN a ELSE b
MaxOf(S)  == CHOOSE x \in S : \A y \in S : y <= x

(* What is asked of the sinks to commit an epoch: the whole of it, or slot by slot. *)
Asks == {<<"aggregated", 0>>} \cup {<<"slotwise", k>> : k \in Slots}

Record(e, f, k, a) == [epoch |-> e, fence |-> f, slot |-> k, attempt |-> a]

(* A decision names the records of each sink. *)
Nothing    == [s \in Sinks |-> {}]
NoDecision == [isMade |-> FALSE, of |-> Nothing]
EmptyStore == [fence |-> 0, owner |-> 0, committed |-> None, decision |-> [e \in Epochs |-> NoDecision]]

IsDecided(e) == store.decision[e].isMade
OpenEpochs   == {e \in Epochs : IsDecided(e) /\ e > store.committed}
OpenEpoch    == IF OpenEpochs = {} THEN None ELSE MaxOf(OpenEpochs)
OpenRecords  == IF OpenEpochs = {} THEN Nothing ELSE store.decision[OpenEpoch].of
NewestEpoch  == MaxOf({store.committed} \cup {e \in Epochs : IsDecided(e)})

IsVisible(s, r) == \E v \in sink[s].visible : v.record = r
Shown(s, e)     == {v \in sink[s].visible : v.record.epoch = e}
Copies(s, e, k) == Cardinality({v \in Shown(s, e) : v.record.slot = k})
Ledger(s)       == MaxOf({None} \cup {v.record.epoch : v \in sink[s].visible})

(* What a sink shows after it has made `records` visible, once more if it had them. *)
Add(s, records) == sink[s].visible \cup
    {[record |-> r, copy |-> IF IsVisible(s, r) THEN 2 ELSE 1] : r \in records}

(* What sinks hold of the epoch after the newest one that is known to be committed. *)
NotHeld == [epoch |-> None, aggregated |-> {}, slotwise |-> {}]

Fresh == [at |-> "off", fence |-> 0, epoch |-> None, open |-> None, known |-> None, look |-> None,
          held |-> NotHeld, keep |-> Nothing, left |-> {}, blocked |-> FALSE]

Init ==
    /\ store = EmptyStore
    /\ sink = [s \in Sinks |-> [fence |-> 0, stands |-> 0, staged |-> {}, visible |-> {}]]
    /\ acked = None
    /\ driver = [d \in Drivers |-> Fresh]
    /\ tasks = {}
    /\ extra = 0
    /\ losses = 0
    /\ past = [decided |-> {}, trespass |-> FALSE]

At(d, place)  == driver[d].at = place
Put(d, state) == driver' = [driver EXCEPT ![d] = state]
Go(d, place)  == Put(d, [driver[d] EXCEPT !.at = place])
Stopped       == [Fresh EXCEPT !.at = "stopped"]
IsOwner(d)    == store.fence = driver[d].fence /\ store.owner = d

(* Of a driver that has ended nobody reads the reports. Attempts that still run go on. *)
Unread(d) == {t \in tasks : t.driver = d /\ t.next = "reported"}

Stop(d) ==
    /\ Put(d, Stopped)
    /\ tasks' = tasks \ Unread(d)
    /\ UNCHANGED <<store, sink, acked, extra, losses, past>>

(* A contradiction is told as such only to the driver that owns the pipeline; an older one is fenced. *)
Contradict(d) ==
    IF IsOwner(d)
    THEN /\ Go(d, "refused")
         /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>
    ELSE Stop(d)

(* A prepare or a commit by fence f in sink s. *)
Mark(f, s) == past' = [past EXCEPT !.trespass = @ \/ f < sink[s].stands]

(* A driver that can do nothing more than be refused is stopped at once, which leaves fewer states to look at. A broken *)
(* protocol may do something else, and a state store that is lost begins anew, so there it is left as it is.           *)
CanOnlyStop(d, storeFence, sinks) ==
    LET st == driver[d]
        IsFenced(s) == st.fence < sinks[s].fence
        hasNothing == \A s \in Sinks : IsFenced(s) /\ \A r \in sinks[s].staged : r.fence > st.fence
    IN
    /\ Broken = "none" /\ StoreLosses = 0 /\ st.fence < storeFence
    /\ \/ st.at \in {"asking", "owning"}
       \/ st.at \in {"looking", "examining"} /\ IsFenced("aggregated")
       \/ st.at = "raising" /\ IsFenced(IF "aggregated" \in st.left THEN "aggregated" ELSE "slotwise")
       \/ st.at = "entering" /\ st.open # None
       \/ st.at \in {"settling", "committing"} /\ \A ask \in st.left : IsFenced(ask[1])
       \/ st.at \in {"writing", "deciding", "aborting"} /\ hasNothing

(* Driver d is in `state` now, and others may be at their end. *)
PutNewest(d, state, storeFence, sinks) ==
    driver' = [o \in Drivers |-> IF o = d THEN state
                                 ELSE IF CanOnlyStop(o, storeFence, sinks) THEN Stopped ELSE driver[o]]

-----------------------------------------------------------------------------
(* The start of a run: recovery.py *)

IsNextToStart(d) == At(d, "off") /\ (d > 1 => ~ (At(d - 1, "off") \/ At(d - 1, "early")))

(* 1. Take the fence. The state comes back from the same transaction. *)
TakeFence(d) ==
    LET fence == Max(store.fence + 1, driver[d].fence) IN
    /\ \/ At(d, "again")
       \/ IF Broken \in {"state-before-fence", "checkpoint-before-fence"} THEN At(d, "early") ELSE IsNextToStart(d)
    /\ store' = [store EXCEPT !.fence = fence, !.owner = d]
    /\ PutNewest(d, [driver[d] EXCEPT !.at = IF Broken = "checkpoint-before-fence" THEN "examining" ELSE "looking",
                                      !.fence = fence,
                                      !.open = IF Broken = "state-before-fence" THEN @ ELSE OpenEpoch,
                                      !.keep = IF Broken = "state-before-fence" THEN @ ELSE OpenRecords,
                                      !.known = IF Broken = "state-before-fence" THEN @ ELSE store.committed],
                 fence, sink)
    /\ UNCHANGED <<sink, acked, tasks, extra, losses, past>>

(* Broken: something is read before the fence is taken. *)
ReadEarly(d) ==
    /\ Broken \in {"state-before-fence", "checkpoint-before-fence"}
    /\ IsNextToStart(d)
    /\ Put(d, [driver[d] EXCEPT !.at = "early",
                                !.open = IF Broken = "state-before-fence" THEN OpenEpoch ELSE None,
                                !.keep = IF Broken = "state-before-fence" THEN OpenRecords ELSE Nothing,
                                !.known = IF Broken = "state-before-fence" THEN store.committed ELSE None,
                                !.look = IF Broken = "checkpoint-before-fence" THEN acked ELSE None])
    /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>

(* ... above every fence that a sink has seen, for the state store may be new. Then look at the checkpoint. *)
Look(d) ==
    LET seen == MaxOf({sink[s].fence : s \in Sinks}) IN
    /\ At(d, "looking")
    /\ IF seen >= driver[d].fence /\ store.fence > driver[d].fence THEN Stop(d)
       ELSE /\ Put(d, IF seen >= driver[d].fence
                      THEN [Fresh EXCEPT !.at = "again", !.fence = seen + 1]
                      ELSE [driver[d] EXCEPT !.at = "examining", !.look = acked])
            /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>

(* 2. Compare the witnesses: state store, checkpoint, ledgers. *)
HoldsUpTo(e, newest) == \A s \in Sinks : Ledger(s) >= e /\ Ledger(s) <= newest + 1

(* The newest epoch that Spark was told is done, where the state store does not know it. *)
Adopted(open, known, look) == IF look > Max(open, known) THEN look ELSE None

Contradiction(open, known, look) ==
    LET newest == Max(open, known)
        adopted == Adopted(open, known, look)
    IN
    \/ look < newest - 1                                       \* the checkpoint is older than the pipeline
    \/ ~ HoldsUpTo(Max(known, adopted), Max(newest, adopted))  \* a sink has lost epochs, or is ahead of everybody
    \/ adopted = None /\ open # None /\ open <= look /\ ~ HoldsUpTo(open, newest)

(* Sinks hold an epoch whose decision was lost with the state store. *)
Held(e) ==
    IF \A s \in Sinks : Shown(s, e) = {} THEN NotHeld
    ELSE [epoch |-> e, aggregated |-> {v.record.slot : v \in Shown("aggregated", e)},
          slotwise |-> {v.record.slot : v \in Shown("slotwise", e)}]

(* 3. Raise, then settle: commit what is decided, abort what no decision names; again while the fence was blocked. *)
Raise(st)      == [st EXCEPT !.at = "raising", !.left = Sinks, !.blocked = FALSE]
AfterUndo(st)  == IF (st.blocked /\ Broken # "raise-once") \/ Broken = "settle-before-raise" THEN Raise(st)
                  ELSE [st EXCEPT !.at = "entering"]
Undo(st)       == IF Broken = "no-abort-in-recovery" THEN AfterUndo(st)
                  ELSE [st EXCEPT !.at = "undoing", !.left = Sinks]
Settle(st)     == IF st.open = None \/ Broken = "no-commit-in-recovery" THEN Undo(st)
                  ELSE [st EXCEPT !.at = "settling", !.left = Asks]
AfterRaise(st) == IF Broken = "settle-before-raise" THEN [st EXCEPT !.at = "entering"]
                  ELSE IF Broken = "no-owner-check" THEN Settle(st)
                  ELSE [st EXCEPT !.at = "owning"]

(* What a driver may be in when one of the things it had left to do is done. *)
After(st, done) ==
    LET now == [st EXCEPT !.left = @ \ {done}] IN
    IF now.left # {} THEN {now}
    ELSE CASE now.at = "raising"    -> {AfterRaise(now)}
           [] now.at = "settling"   -> {Undo(now)}
           [] now.at = "undoing"    -> {AfterUndo(now)}
           [] now.at = "committing" ->
                IF Broken = "commit-before-decide" THEN {[now EXCEPT !.at = "deciding"]}
                ELSE {[now EXCEPT !.at = "acknowledging", !.keep = Nothing]} \cup
                     IF Broken = "no-sweep" THEN {} ELSE {[now EXCEPT !.at = "sweeping", !.left = Sinks]}
           [] now.at = "sweeping"   -> {[now EXCEPT !.at = "acknowledging", !.keep = Nothing]}
           [] now.at = "aborting"   -> {Stopped}

(* Sinks are raised and swept in the order in which the pipeline names them. *)
IsNext(d, s) == s \in driver[d].left /\ (s = "aggregated" \/ "aggregated" \notin driver[d].left)

Examine(d) ==
    LET st == driver[d]
        adopted == Adopted(st.open, st.known, st.look)
        known == Max(st.known, adopted)
        now == [st EXCEPT !.look = None, !.known = known,
                          !.held = IF Broken = "held-before-raise" THEN Held(Max(known, st.open) + 1) ELSE NotHeld]
    IN
    /\ At(d, "examining")
    /\ IF Contradiction(st.open, st.known, st.look) THEN Contradict(d)
       ELSE IF adopted # None /\ store.fence # st.fence THEN Stop(d)
       ELSE /\ Put(d, IF Broken = "settle-before-raise" THEN Settle(now) ELSE Raise(now))
            /\ store' = [store EXCEPT !.committed = Max(@, adopted)]
            /\ UNCHANGED <<sink, acked, tasks, extra, losses, past>>

(* What is prepared under an older fence is in the way of the slotwise sink. *)
IsBlocked(d, s) == s = "slotwise" /\ \E r \in sink[s].staged : r.fence < driver[d].fence

RaiseFence(d, s) ==
    LET fence == driver[d].fence IN
    /\ At(d, "raising") /\ IsNext(d, s)
    /\ IF sink[s].fence > fence THEN Stop(d)
       ELSE IF IsBlocked(d, s) /\ Broken # "no-raise"
       THEN /\ \E st \in After([driver[d] EXCEPT !.blocked = TRUE], s) : Put(d, st)
            /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>
       ELSE /\ sink' = [sink EXCEPT ![s].fence = IF Broken = "no-raise" THEN @ ELSE fence, ![s].stands = Max(@, fence)]
            /\ \E st \in After(driver[d], s) : PutNewest(d, st, store.fence, sink')
            \* What an older attempt would do here next is refused from now on, so it is forgotten.
            /\ tasks' = {t \in tasks : Broken = "no-raise" \/ t.record.fence >= fence \/ t.next # s}
            /\ UNCHANGED <<store, acked, extra, losses, past>>

(* A state store that was lost before any sink saw this fence has given it to another driver as well. *)
Own(d) ==
    /\ At(d, "owning")
    /\ IF IsOwner(d)
       THEN /\ Put(d, Settle(driver[d]))
            /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>
       ELSE Stop(d)

(* 4. Enter it. What sinks hold is read under the fence: an older driver may have committed up to then. *)
Enter(d) ==
    LET st == driver[d]
        known == Max(st.known, st.open)
    IN
    /\ At(d, "entering")
    /\ IF st.open # None /\ store.fence # st.fence THEN Stop(d)
       ELSE /\ store' = [store EXCEPT !.committed = Max(@, st.open)]
            /\ Put(d, [Fresh EXCEPT !.at = "ready", !.fence = st.fence, !.known = known,
                                    !.held = IF Broken = "held-before-raise" THEN st.held
                                             ELSE Held(known + 1)])
            /\ UNCHANGED <<sink, acked, tasks, extra, losses, past>>

-----------------------------------------------------------------------------
(* An epoch: epoch.py *)

Attempt(d, e, k, a) == [driver |-> d, record |-> Record(e, driver[d].fence, k, a), next |-> "aggregated"]

(* Spark hands over an epoch. It has read its commit log at some time, perhaps before the fence was taken. *)
HandOver(d, e) ==
    IF e > LastEpoch THEN
        \* No rows come. The end of a run enters its last epoch.
        /\ Put(d, [driver[d] EXCEPT !.at = "idle", !.epoch = None])
        /\ store' = [store EXCEPT !.committed = IF IsOwner(d) THEN Max(@, driver[d].known) ELSE @]
        /\ UNCHANGED <<sink, acked, tasks, extra, losses, past>>
    \* 1. Already committed?
    ELSE IF e <= driver[d].known /\ Broken # "replay-unasked" THEN
        /\ Put(d, [driver[d] EXCEPT !.at = "acknowledging", !.epoch = e])
        /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>
    ELSE IF e > driver[d].known + 1 THEN Contradict(d)
    \* 2. One Spark job.
    ELSE
        /\ Put(d, [driver[d] EXCEPT !.at = "writing", !.epoch = e])
        /\ tasks' = tasks \cup {Attempt(d, e, k, 0) : k \in Slots}
        /\ UNCHANGED <<store, sink, acked, extra, losses, past>>

Begin(d) ==
    \/ At(d, "ready") /\ \E e \in 0..(acked + 1) : HandOver(d, e)
    \/ At(d, "next") /\ HandOver(d, driver[d].epoch + 1)

(* A task failed and is tried again, or it is slow and has a twin. The first one may go on all the same. *)
StartExtra(d, k) ==
    /\ At(d, "writing") /\ extra < ExtraAttempts
    /\ tasks' = tasks \cup {Attempt(d, driver[d].epoch, k, extra + 1)}
    /\ extra' = extra + 1
    /\ UNCHANGED <<store, sink, acked, driver, losses, past>>

IsAwaited(t) == At(t.driver, "writing") /\ driver[t.driver].epoch = t.record.epoch

(* An attempt prepares in one sink after the other, whether its driver still lives or not. *)
Prepare(t) ==
    /\ t.next # "reported"
    /\ sink[t.next].fence <= t.record.fence
    /\ sink' = [sink EXCEPT ![t.next].staged = @ \cup {t.record}]
    /\ tasks' = (tasks \ {t}) \cup
        IF t.next = "aggregated" THEN {[t EXCEPT !.next = "slotwise"]}
        ELSE IF IsAwaited(t) THEN {[t EXCEPT !.next = "reported"]} ELSE {}
    /\ Mark(t.record.fence, t.next)
    /\ UNCHANGED <<store, acked, driver, extra, losses>>

(* 3. Exactly one report for every slot. What sinks hold already is left out. *)
Reports(d)  == {t \in tasks : t.driver = d /\ t.next = "reported" /\ t.record.epoch = driver[d].epoch}
Reported(d) == {t.record : t \in Reports(d)}

Missing(d, records) ==
    IF driver[d].held.epoch # driver[d].epoch THEN [s \in Sinks |-> records]
    ELSE [s \in Sinks |-> {r \in records : r.slot \notin driver[d].held[s]}]

Harvest(d) ==
    /\ At(d, "writing")
    /\ \E keep \in SUBSET Reported(d) :
        /\ IF Broken = "slots-uncounted" THEN keep # {} ELSE {r.slot : r \in keep} = Slots
        /\ \A r, q \in keep : r.slot = q.slot => r = q
        /\ Put(d, [driver[d] EXCEPT !.keep = Missing(d, keep), !.held = NotHeld,
                                    !.at = IF Broken = "commit-before-decide" THEN "committing" ELSE "deciding",
                                    !.left = IF Broken = "commit-before-decide" THEN Asks ELSE {}])
    /\ tasks' = tasks \ Reports(d)
    /\ UNCHANGED <<store, sink, acked, extra, losses, past>>

(* 4. Decide, and enter the epoch before it. An answer may be lost; then the same decision is written again. *)
Decide(d) ==
    LET e == driver[d].epoch
        decision == [isMade |-> TRUE, of |-> driver[d].keep]
        before == {o \in OpenEpochs : o < e}
    IN
    /\ At(d, "deciding") \/ At(d, "asking")
    /\ IF store.fence # driver[d].fence /\ Broken # "no-fence-in-store" THEN Stop(d)
       ELSE IF store.decision[e] # decision /\ e <= NewestEpoch THEN Contradict(d)
       ELSE /\ store' = [store EXCEPT !.decision[e] = decision, !.committed = MaxOf({@} \cup before)]
            /\ past' = [past EXCEPT !.decided = @ \cup UNION {{<<s, r>> : r \in driver[d].keep[s]} : s \in Sinks}]
            /\ \/ Put(d, IF Broken = "commit-before-decide"
                         THEN [driver[d] EXCEPT !.at = "acknowledging", !.keep = Nothing]
                         ELSE [driver[d] EXCEPT !.at = "committing", !.left = Asks])
               \/ Go(d, "asking")
            /\ UNCHANGED <<sink, acked, tasks, extra, losses>>

(* The request was lost, and the driver cannot know that. *)
DecideLost(d) ==
    /\ At(d, "deciding")
    /\ Go(d, "asking")
    /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>

(* Before the decision any error aborts: a task failed for good, or the store was never reached. *)
Fail(d) ==
    /\ At(DriverCount, "off") \/ ~ IsOwner(d)
    /\ \/ At(d, "writing")
       \/ At(d, "deciding")
       \/ At(d, "asking") /\ Broken = "abort-on-unknown"
       \/ At(d, "committing") /\ Broken = "abort-after-decide"
    /\ Put(d, [driver[d] EXCEPT !.at = "aborting", !.keep = Nothing, !.left = Sinks])
    /\ tasks' = tasks \ Unread(d)
    /\ UNCHANGED <<store, sink, acked, extra, losses, past>>

(* 5. Commit every sink: station.py. Also the third step of recovery. *)
(* The aggregated sink: rows and ledger in one step. The slotwise one: each record on its own. *)
Effect(d, ask) ==
    LET s == ask[1]
        epoch == IF At(d, "settling") THEN driver[d].open ELSE driver[d].epoch
        keep == driver[d].keep[s]
        mine == IF s = "aggregated" THEN keep ELSE {r \in keep : r.slot = ask[2]}
        isDone == IF s = "aggregated" THEN epoch <= Ledger(s) ELSE \A r \in mine : IsVisible(s, r)
        shown == IF Broken = "epoch-in-parts" /\ s = "aggregated" /\ mine # {}
                 THEN {CHOOSE r \in mine : r \in sink[s].staged} ELSE mine
    IN IF isDone /\ Broken # "no-ledger" THEN [kind |-> "already", sink |-> sink[s]]
       ELSE IF ~ isDone /\ ~ (mine \subseteq sink[s].staged) THEN [kind |-> "refused", sink |-> sink[s]]
       ELSE [kind |-> "committed",
             sink |-> [sink[s] EXCEPT !.staged = @ \ shown, !.visible = Add(s, shown)]]

Commit(d, ask) ==
    LET s == ask[1] IN
    /\ At(d, "settling") \/ At(d, "committing")
    /\ ask \in driver[d].left
    /\ IF sink[s].fence > driver[d].fence THEN Stop(d)
       ELSE LET effect == Effect(d, ask) IN
            IF effect.kind = "refused" THEN Contradict(d)
            ELSE /\ sink' = [sink EXCEPT ![s] = effect.sink]
                 /\ IF effect.kind = "committed" THEN Mark(driver[d].fence, s) ELSE UNCHANGED past
                 \* The answer came, or it was lost.
                 /\ (\E st \in After(driver[d], ask) : Put(d, st)) \/ UNCHANGED driver
                 /\ UNCHANGED <<store, acked, tasks, extra, losses>>

(* Broken: a request that got no answer is taken for done. *)
CommitBelieved(d, ask) ==
    /\ Broken = "unknown-is-success"
    /\ At(d, "settling") \/ At(d, "committing")
    /\ ask \in driver[d].left
    /\ \E st \in After(driver[d], ask) : Put(d, st)
    /\ UNCHANGED <<store, sink, acked, tasks, extra, losses, past>>

(* 6. Sweep; also the abort of an epoch, and of what recovery finds undecided. *)
Litter(d, s) ==
    LET winners == IF At(d, "undoing") \/ At(d, "sweeping") THEN driver[d].keep[s] ELSE {} IN
    {r \in sink[s].staged : (r.fence <= driver[d].fence \/ Broken = "abort-any-fence") /\ r \notin winners}

Abort(d, s) ==
    /\ At(d, "undoing") \/ At(d, "sweeping") \/ At(d, "aborting")
    /\ IsNext(d, s)
    /\ sink' = [sink EXCEPT ![s].staged = @ \ Litter(d, s)]
    /\ \E st \in After(driver[d], s) : PutNewest(d, st, store.fence, sink')
    /\ UNCHANGED <<store, acked, tasks, extra, losses, past>>

(* The callback returns, and Spark acknowledges. *)
Acknowledge(d) ==
    /\ At(d, "acknowledging")
    /\ acked' = Max(acked, driver[d].epoch)
    /\ Put(d, [driver[d] EXCEPT !.at = "next", !.known = Max(@, driver[d].epoch)])
    /\ UNCHANGED <<store, sink, tasks, extra, losses, past>>

(* Broken: Spark is told before the sinks have committed. *)
AcknowledgeEarly(d) ==
    /\ Broken = "acknowledge-before-commit" /\ At(d, "committing")
    /\ acked' = Max(acked, driver[d].epoch)
    /\ UNCHANGED <<store, sink, driver, tasks, extra, losses, past>>

(* The sweep of every hundredth epoch, and of the next start. *)
SweepIdle(d, s) ==
    /\ At(d, "idle") /\ Litter(d, s) # {} /\ Broken # "no-sweep"
    /\ sink' = [sink EXCEPT ![s].staged = @ \ Litter(d, s)]
    /\ UNCHANGED <<store, acked, driver, tasks, extra, losses, past>>

-----------------------------------------------------------------------------
Step(d) ==
    \/ Look(d) \/ Examine(d) \/ Own(d) \/ Enter(d) \/ (At(d, "again") /\ TakeFence(d))
    \/ Begin(d) \/ Harvest(d) \/ Decide(d) \/ DecideLost(d) \/ Fail(d) \/ Acknowledge(d) \/ AcknowledgeEarly(d)
    \/ \E s \in Sinks : RaiseFence(d, s) \/ Abort(d, s) \/ SweepIdle(d, s)
    \/ \E ask \in Asks : Commit(d, ask) \/ CommitBelieved(d, ask)

(* Somebody deletes the state store. *)
LoseStore ==
    /\ losses < StoreLosses /\ store # EmptyStore
    /\ losses' = losses + 1
    /\ store' = EmptyStore
    /\ UNCHANGED <<sink, acked, driver, tasks, extra, past>>

Next ==
    \/ LoseStore
    \/ \E d \in Drivers : ReadEarly(d) \/ TakeFence(d) \/ Step(d)
    \/ \E d \in Drivers, k \in Slots : StartExtra(d, k)
    \/ \E t \in tasks : Prepare(t)

(* Once crashes stop: the driver that owns the pipeline goes on, so do its tasks, and if it has ended another is started. *)
Fairness ==
    /\ \A d \in Drivers :
        /\ WF_vars(store.owner = d /\ Step(d))
        /\ WF_vars(store.owner = d /\ \E t \in tasks : t.driver = d /\ Prepare(t))
        /\ WF_vars((store.owner \in Drivers => At(store.owner, "stopped")) /\ TakeFence(d))

Spec == Init /\ [][Next]_vars /\ Fairness

-----------------------------------------------------------------------------
(* Safety *)

NothingUndecidedIsVisible ==
    \A s \in Sinks : \A v \in sink[s].visible : <<s, v.record>> \in past.decided

NothingIsVisibleTwice ==
    \A s \in Sinks, e \in Epochs, k \in Slots : Copies(s, e, k) <= 1

NothingDecidedIsAborted ==
    \A s \in Sinks, e \in Epochs : \A r \in store.decision[e].of[s] :
        r \in sink[s].staged \/ Copies(s, e, r.slot) > 0

NoOlderFenceHasAnEffect == ~ past.trespass

AcknowledgedIsVisibleOnce ==
    \A e \in Epochs : e <= acked => \A s \in Sinks, k \in Slots : Copies(s, e, k) = 1

AggregatedEpochsAreWhole ==
    \A e \in Epochs : Shown("aggregated", e) = {} \/ {v.record.slot : v \in Shown("aggregated", e)} = Slots

RecoveryLeavesNoLitter ==
    \A d \in Drivers, s \in Sinks : At(d, "ready") => \A r \in sink[s].staged : r.fence >= driver[d].fence

NobodyIsRefusedInVain == \A d \in Drivers : ~ At(d, "refused")

OneDecisionIsOpen == Cardinality(OpenEpochs) <= 1

(* Liveness *)

EveryEpochArrives == <>[](acked = LastEpoch /\ \A s \in Sinks : sink[s].staged = {})
=============================================================================

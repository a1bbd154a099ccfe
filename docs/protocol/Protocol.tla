------------------------------ MODULE Protocol ------------------------------
(***************************************************************************)
(* The protocol of pakka: what src/pakka/coordinator does, step by step.    *)
(* README.md beside this file maps every name to the code.                  *)
(*                                                                         *)
(* A driver is called by its fence: taking the fence is its first step.     *)
(* A crash needs no step of its own. A driver that crashed is one that does *)
(* nothing more, and the next one may start at any time. One that does go   *)
(* on after that is a zombie.                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    LastEpoch,      \* epochs are 0..LastEpoch
    SlotCount,      \* slots of an epoch are 1..SlotCount
    DriverCount,    \* drivers are 1..DriverCount; the last one does not fail
    ExtraAttempts,  \* how many second attempts at a slot Spark starts, in all
    Broken          \* "none", or the one step that is left out or moved

(* README.md says what each of them does. A name that is not known must not pass for the true protocol. *)
ASSUME Broken \in {
    "none", "no-raise", "no-fence-in-store", "state-before-fence", "checkpoint-before-fence", "settle-before-raise",
    "no-commit-in-recovery", "no-abort-in-recovery", "raise-once", "replay-unasked", "slots-uncounted",
    "commit-before-decide", "abort-on-unknown", "abort-after-decide", "unknown-is-success", "no-ledger",
    "epoch-in-parts", "abort-any-fence", "acknowledge-before-commit", "no-sweep"}

VARIABLES
    store,          \* the state store: fence, committed, decision of each epoch
    sink,           \* each sink: fence, staged and visible records, ledger
    acked,          \* Spark's commit log: the newest acknowledged epoch
    driver,         \* each driver: where it is, and what it remembers
    tasks,          \* attempts that still run, or whose report waits for their driver
    extra,          \* second attempts started so far
    trespass        \* history: an older fence had an effect in a sink after a newer one stood there

vars == <<store, sink, acked, driver, tasks, extra, trespass>>

Epochs  == 0..LastEpoch
Slots   == 1..SlotCount
Drivers == 1..DriverCount
Sinks   == {"aggregated", "slotwise"}
None    == -1

Max(a, b) == IF a > b THEN a ELSE b
MaxOf(S)  == CHOOSE x \in S : \A y \in S : y <= x

(* What is asked of the sinks to commit an epoch: the whole of it, or slot by slot. *)
Asks == {<<"aggregated", 0>>} \cup {<<"slotwise", k>> : k \in Slots}

Record(e, d, k, a) == [epoch |-> e, fence |-> d, slot |-> k, attempt |-> a]

IsDecided(e) == store.decision[e] # {}
OpenEpochs   == {e \in Epochs : IsDecided(e) /\ e > store.committed}
OpenEpoch    == IF OpenEpochs = {} THEN None ELSE MaxOf(OpenEpochs)
NewestEpoch  == MaxOf({store.committed} \cup {e \in Epochs : IsDecided(e)})

IsVisible(s, r) == \E v \in sink[s].visible : v.record = r
Shown(s, e)     == {v \in sink[s].visible : v.record.epoch = e}
Copies(s, e, k) == Cardinality({v \in Shown(s, e) : v.record.slot = k})
Ledger(s)       == MaxOf({None} \cup {v.record.epoch : v \in sink[s].visible})

(* What a sink shows after it has made `records` visible, once more if it had them. *)
Add(s, records) == sink[s].visible \cup
    {[record |-> r, copy |-> IF IsVisible(s, r) THEN 2 ELSE 1] : r \in records}

Fresh == [at |-> "off", epoch |-> None, open |-> None, known |-> None, look |-> None,
          keep |-> {}, left |-> {}, blocked |-> FALSE]

Init ==
    /\ store = [fence |-> 0, committed |-> None, decision |-> [e \in Epochs |-> {}]]
    /\ sink = [s \in Sinks |-> [fence |-> 0, stands |-> 0, staged |-> {}, visible |-> {}]]
    /\ acked = None
    /\ driver = [d \in Drivers |-> Fresh]
    /\ tasks = {}
    /\ extra = 0
    /\ trespass = FALSE

At(d, place)  == driver[d].at = place
Put(d, state) == driver' = [driver EXCEPT ![d] = state]
Go(d, place)  == Put(d, [driver[d] EXCEPT !.at = place])
Stopped       == [Fresh EXCEPT !.at = "stopped"]

(* Of a driver that has ended nobody reads the reports. Attempts that still run go on. *)
Unread(d) == {t \in tasks : t.record.fence = d /\ t.next = "reported"}

Stop(d) ==
    /\ Put(d, Stopped)
    /\ tasks' = tasks \ Unread(d)
    /\ UNCHANGED <<store, sink, acked, extra, trespass>>

(* A contradiction is told as such only to the driver that owns the pipeline; an older one is fenced. *)
Contradict(d) ==
    IF store.fence > d
    THEN Stop(d)
    ELSE /\ Go(d, "refused")
         /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

(* A prepare or a commit by fence d in sink s. *)
Mark(d, s) == trespass' = (trespass \/ d < sink[s].stands)

(* A driver that can do nothing more than be refused is stopped at once, which leaves fewer states to look at. A broken *)
(* protocol may do something else, so there it is left as it is.                                                       *)
CanOnlyStop(d, storeFence, sinkFence) ==
    LET st == driver[d] IN
    /\ Broken = "none"
    /\ \/ d < storeFence /\ (st.at = "asking" \/ (st.at = "entering" /\ st.open # None))
       \/ st.at = "raising" /\ d < sinkFence[IF "aggregated" \in st.left THEN "aggregated" ELSE "slotwise"]
       \/ st.at \in {"settling", "committing"} /\ \A ask \in st.left : d < sinkFence[ask[1]]

(* Driver d is in `state` now, and older ones may be at their end. *)
PutNewest(d, state, storeFence, sinkFence) ==
    driver' = [o \in Drivers |-> IF o = d THEN state
                                 ELSE IF o < d /\ CanOnlyStop(o, storeFence, sinkFence) THEN Stopped ELSE driver[o]]

SinkFences == [s \in Sinks |-> sink[s].fence]

-----------------------------------------------------------------------------
(* The start of a run: recovery.py *)

(* 1. Take the fence. The state comes back from the same transaction. *)
TakeFence(d) ==
    /\ d = store.fence + 1
    /\ IF Broken \in {"state-before-fence", "checkpoint-before-fence"} THEN At(d, "early") ELSE At(d, "off")
    /\ store' = [store EXCEPT !.fence = d]
    /\ PutNewest(d, [driver[d] EXCEPT !.at = IF Broken = "checkpoint-before-fence" THEN "examining" ELSE "looking",
                                      !.open = IF Broken = "state-before-fence" THEN @ ELSE OpenEpoch,
                                      !.known = IF Broken = "state-before-fence" THEN @ ELSE store.committed],
                 d, SinkFences)
    /\ UNCHANGED <<sink, acked, tasks, extra, trespass>>

(* Broken: something is read before the fence is taken. *)
ReadEarly(d) ==
    /\ Broken \in {"state-before-fence", "checkpoint-before-fence"}
    /\ d = store.fence + 1 /\ At(d, "off")
    /\ Put(d, [driver[d] EXCEPT !.at = "early",
                                !.open = IF Broken = "state-before-fence" THEN OpenEpoch ELSE None,
                                !.known = IF Broken = "state-before-fence" THEN store.committed ELSE None,
                                !.look = IF Broken = "checkpoint-before-fence" THEN acked ELSE None])
    /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

(* 2. Compare the witnesses: first the checkpoint, then the ledgers. *)
Look(d) ==
    /\ At(d, "looking")
    /\ Put(d, [driver[d] EXCEPT !.at = "examining", !.look = acked])
    /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

Contradiction(open, known, look) ==
    LET newest == Max(open, known) IN
    \/ look < newest - 1                                    \* the checkpoint is older than the pipeline
    \/ look > newest                                        \* acknowledged, and the store never decided it
    \/ \E s \in Sinks : Ledger(s) < known                   \* a sink has lost committed rows
    \/ \E s \in Sinks : Ledger(s) > newest + 1              \* a sink is ahead of everybody
    \/ open # None /\ open <= look /\ \E s \in Sinks : Ledger(s) < open

(* 3. Raise, then settle: commit what is decided, abort what no decision names; again while the fence was blocked. *)
Raise(st)      == [st EXCEPT !.at = "raising", !.left = Sinks, !.blocked = FALSE]
AfterUndo(st)  == IF (st.blocked /\ Broken # "raise-once") \/ Broken = "settle-before-raise" THEN Raise(st)
                  ELSE [st EXCEPT !.at = "entering"]
Undo(st)       == IF Broken = "no-abort-in-recovery" THEN AfterUndo(st)
                  ELSE [st EXCEPT !.at = "undoing", !.left = Sinks]
Settle(st)     == IF st.open = None \/ Broken = "no-commit-in-recovery" THEN Undo(st)
                  ELSE [st EXCEPT !.at = "settling", !.left = Asks]
AfterRaise(st) == IF Broken = "settle-before-raise" THEN [st EXCEPT !.at = "entering"] ELSE Settle(st)

(* What a driver may be in when one of the things it had left to do is done. *)
After(st, done) ==
    LET now == [st EXCEPT !.left = @ \ {done}] IN
    IF now.left # {} THEN {now}
    ELSE CASE now.at = "raising"    -> {AfterRaise(now)}
           [] now.at = "settling"   -> {Undo(now)}
           [] now.at = "undoing"    -> {AfterUndo(now)}
           [] now.at = "committing" ->
                IF Broken = "commit-before-decide" THEN {[now EXCEPT !.at = "deciding"]}
                ELSE {[now EXCEPT !.at = "acknowledging", !.keep = {}]} \cup
                     IF Broken = "no-sweep" THEN {} ELSE {[now EXCEPT !.at = "sweeping", !.left = Sinks]}
           [] now.at = "sweeping"   -> {[now EXCEPT !.at = "acknowledging", !.keep = {}]}
           [] now.at = "aborting"   -> {Stopped}

(* Sinks are raised and swept in the order in which the pipeline names them. *)
IsNext(d, s) == s \in driver[d].left /\ (s = "aggregated" \/ "aggregated" \notin driver[d].left)

Examine(d) ==
    /\ At(d, "examining")
    /\ IF Contradiction(driver[d].open, driver[d].known, driver[d].look) THEN Contradict(d)
       ELSE LET st == [driver[d] EXCEPT !.look = None] IN
            /\ Put(d, IF Broken = "settle-before-raise" THEN Settle(st) ELSE Raise(st))
            /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

(* What is prepared under an older fence is in the way of the slotwise sink. *)
IsBlocked(d, s) == s = "slotwise" /\ \E r \in sink[s].staged : r.fence < d

RaiseFence(d, s) ==
    /\ At(d, "raising") /\ IsNext(d, s)
    /\ IF sink[s].fence > d THEN Stop(d)
       ELSE IF IsBlocked(d, s) /\ Broken # "no-raise"
       THEN /\ \E st \in After([driver[d] EXCEPT !.blocked = TRUE], s) : Put(d, st)
            /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>
       ELSE /\ sink' = [sink EXCEPT ![s].fence = IF Broken = "no-raise" THEN @ ELSE d, ![s].stands = Max(@, d)]
            /\ \E st \in After(driver[d], s) : PutNewest(d, st, store.fence, [SinkFences EXCEPT ![s] = d])
            \* What an older attempt would do here next is refused from now on, so it is forgotten.
            /\ tasks' = {t \in tasks : Broken = "no-raise" \/ t.record.fence >= d \/ t.next # s}
            /\ UNCHANGED <<store, acked, extra, trespass>>

(* 4. Enter it. *)
Enter(d) ==
    /\ At(d, "entering")
    /\ IF driver[d].open # None /\ store.fence # d THEN Stop(d)
       ELSE /\ store' = [store EXCEPT !.committed = Max(@, driver[d].open)]
            /\ Put(d, [Fresh EXCEPT !.at = "ready", !.known = Max(driver[d].known, driver[d].open)])
            /\ UNCHANGED <<sink, acked, tasks, extra, trespass>>

-----------------------------------------------------------------------------
(* An epoch: epoch.py *)

(* Spark hands over an epoch. It has read its commit log at some time, perhaps before the fence was taken. *)
HandOver(d, e) ==
    IF e > LastEpoch THEN
        \* No rows come. The end of a run enters its last epoch.
        /\ Put(d, [driver[d] EXCEPT !.at = "idle", !.epoch = None])
        /\ store' = [store EXCEPT !.committed = IF store.fence = d THEN Max(@, driver[d].known) ELSE @]
        /\ UNCHANGED <<sink, acked, tasks, extra, trespass>>
    \* 1. Already committed?
    ELSE IF e <= driver[d].known /\ Broken # "replay-unasked" THEN
        /\ Put(d, [driver[d] EXCEPT !.at = "acknowledging", !.epoch = e])
        /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>
    ELSE IF e > driver[d].known + 1 THEN Contradict(d)
    \* 2. One Spark job.
    ELSE
        /\ Put(d, [driver[d] EXCEPT !.at = "writing", !.epoch = e])
        /\ tasks' = tasks \cup {[record |-> Record(e, d, k, 0), next |-> "aggregated"] : k \in Slots}
        /\ UNCHANGED <<store, sink, acked, extra, trespass>>

Begin(d) ==
    \/ At(d, "ready") /\ \E e \in 0..(acked + 1) : HandOver(d, e)
    \/ At(d, "next") /\ HandOver(d, driver[d].epoch + 1)

(* A task failed and is tried again, or it is slow and has a twin. The first one may go on all the same. *)
StartExtra(d, k) ==
    /\ At(d, "writing") /\ extra < ExtraAttempts
    /\ tasks' = tasks \cup {[record |-> Record(driver[d].epoch, d, k, extra + 1), next |-> "aggregated"]}
    /\ extra' = extra + 1
    /\ UNCHANGED <<store, sink, acked, driver, trespass>>

IsAwaited(r) == At(r.fence, "writing") /\ driver[r.fence].epoch = r.epoch

(* An attempt prepares in one sink after the other, whether its driver still lives or not. *)
Prepare(t) ==
    /\ t.next # "reported"
    /\ sink[t.next].fence <= t.record.fence
    /\ sink' = [sink EXCEPT ![t.next].staged = @ \cup {t.record}]
    /\ tasks' = (tasks \ {t}) \cup
        IF t.next = "aggregated" THEN {[t EXCEPT !.next = "slotwise"]}
        ELSE IF IsAwaited(t.record) THEN {[t EXCEPT !.next = "reported"]} ELSE {}
    /\ Mark(t.record.fence, t.next)
    /\ UNCHANGED <<store, acked, driver, extra>>

(* 3. Exactly one report for every slot. *)
Reported(d) == {t.record : t \in {u \in tasks : u.next = "reported" /\ u.record.fence = d
                                                /\ u.record.epoch = driver[d].epoch}}

Harvest(d) ==
    /\ At(d, "writing")
    /\ \E keep \in SUBSET Reported(d) :
        /\ IF Broken = "slots-uncounted" THEN keep # {} ELSE {r.slot : r \in keep} = Slots
        /\ \A r, q \in keep : r.slot = q.slot => r = q
        /\ Put(d, [driver[d] EXCEPT !.keep = keep,
                                    !.at = IF Broken = "commit-before-decide" THEN "committing" ELSE "deciding",
                                    !.left = IF Broken = "commit-before-decide" THEN Asks ELSE {}])
    /\ tasks' = {t \in tasks : t.record \notin Reported(d)}
    /\ UNCHANGED <<store, sink, acked, extra, trespass>>

(* 4. Decide. An answer may be lost; then the same decision is written again. *)
Decide(d) ==
    LET e == driver[d].epoch IN
    /\ At(d, "deciding") \/ At(d, "asking")
    /\ IF store.fence # d /\ Broken # "no-fence-in-store" THEN Stop(d)
       ELSE IF store.decision[e] # driver[d].keep /\ e <= NewestEpoch THEN Contradict(d)
       ELSE /\ store' = [store EXCEPT !.decision[e] = driver[d].keep, !.committed = Max(@, e - 1)]
            /\ \/ Put(d, IF Broken = "commit-before-decide"
                         THEN [driver[d] EXCEPT !.at = "acknowledging", !.keep = {}]
                         ELSE [driver[d] EXCEPT !.at = "committing", !.left = Asks])
               \/ Go(d, "asking")
            /\ UNCHANGED <<sink, acked, tasks, extra, trespass>>

(* The request was lost, and the driver cannot know that. *)
DecideLost(d) ==
    /\ At(d, "deciding")
    /\ Go(d, "asking")
    /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

(* Before the decision any error aborts: a task failed for good, or the store was never reached. *)
Fail(d) ==
    /\ d < DriverCount
    /\ \/ At(d, "writing")
       \/ At(d, "deciding")
       \/ At(d, "asking") /\ Broken = "abort-on-unknown"
       \/ At(d, "committing") /\ Broken = "abort-after-decide"
    /\ Put(d, [driver[d] EXCEPT !.at = "aborting", !.keep = {}, !.left = Sinks])
    /\ tasks' = tasks \ Unread(d)
    /\ UNCHANGED <<store, sink, acked, extra, trespass>>

(* 5. Commit every sink: station.py. Also the third step of recovery. *)
ToCommit(d) ==
    IF At(d, "settling") THEN [epoch |-> driver[d].open, records |-> store.decision[driver[d].open]]
    ELSE [epoch |-> driver[d].epoch, records |-> driver[d].keep]

(* The aggregated sink: rows and ledger in one step. The slotwise one: each record on its own. *)
Effect(d, ask) ==
    LET s == ask[1]
        c == ToCommit(d)
        mine == IF s = "aggregated" THEN c.records ELSE {r \in c.records : r.slot = ask[2]}
        isDone == IF s = "aggregated" THEN c.epoch <= Ledger(s) ELSE \A r \in mine : IsVisible(s, r)
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
    /\ IF sink[s].fence > d THEN Stop(d)
       ELSE LET effect == Effect(d, ask) IN
            IF effect.kind = "refused" THEN Contradict(d)
            ELSE /\ sink' = [sink EXCEPT ![s] = effect.sink]
                 /\ IF effect.kind = "committed" THEN Mark(d, s) ELSE UNCHANGED trespass
                 \* The answer came, or it was lost.
                 /\ (\E st \in After(driver[d], ask) : Put(d, st)) \/ UNCHANGED driver
                 /\ UNCHANGED <<store, acked, tasks, extra>>

(* Broken: a request that got no answer is taken for done. *)
CommitBelieved(d, ask) ==
    /\ Broken = "unknown-is-success"
    /\ At(d, "settling") \/ At(d, "committing")
    /\ ask \in driver[d].left
    /\ \E st \in After(driver[d], ask) : Put(d, st)
    /\ UNCHANGED <<store, sink, acked, tasks, extra, trespass>>

(* 6. Sweep; also the abort of an epoch, and of what recovery finds undecided. *)
Winners(d) ==
    IF At(d, "undoing") /\ driver[d].open # None THEN store.decision[driver[d].open]
    ELSE IF At(d, "sweeping") THEN driver[d].keep
    ELSE {}

Litter(d, s) == {r \in sink[s].staged : (r.fence <= d \/ Broken = "abort-any-fence") /\ r \notin Winners(d)}

Abort(d, s) ==
    /\ At(d, "undoing") \/ At(d, "sweeping") \/ At(d, "aborting")
    /\ IsNext(d, s)
    /\ sink' = [sink EXCEPT ![s].staged = @ \ Litter(d, s)]
    /\ \E st \in After(driver[d], s) : Put(d, st)
    /\ UNCHANGED <<store, acked, tasks, extra, trespass>>

(* The callback returns, and Spark acknowledges. *)
Acknowledge(d) ==
    /\ At(d, "acknowledging")
    /\ acked' = Max(acked, driver[d].epoch)
    /\ Put(d, [driver[d] EXCEPT !.at = "next", !.known = Max(@, driver[d].epoch)])
    /\ UNCHANGED <<store, sink, tasks, extra, trespass>>

(* Broken: Spark is told before the sinks have committed. *)
AcknowledgeEarly(d) ==
    /\ Broken = "acknowledge-before-commit" /\ At(d, "committing")
    /\ acked' = Max(acked, driver[d].epoch)
    /\ UNCHANGED <<store, sink, driver, tasks, extra, trespass>>

(* The sweep of every hundredth epoch, and of the next start. *)
SweepIdle(d, s) ==
    /\ At(d, "idle") /\ Litter(d, s) # {} /\ Broken # "no-sweep"
    /\ sink' = [sink EXCEPT ![s].staged = @ \ Litter(d, s)]
    /\ UNCHANGED <<store, acked, driver, tasks, extra, trespass>>

-----------------------------------------------------------------------------
Step(d) ==
    \/ Look(d) \/ Examine(d) \/ Enter(d)
    \/ Begin(d) \/ Harvest(d) \/ Decide(d) \/ DecideLost(d) \/ Fail(d) \/ Acknowledge(d) \/ AcknowledgeEarly(d)
    \/ \E s \in Sinks : RaiseFence(d, s) \/ Abort(d, s) \/ SweepIdle(d, s)
    \/ \E ask \in Asks : Commit(d, ask) \/ CommitBelieved(d, ask)

Next ==
    \/ \E d \in Drivers : ReadEarly(d) \/ TakeFence(d) \/ Step(d)
    \/ \E d \in Drivers, k \in Slots : StartExtra(d, k)
    \/ \E t \in tasks : Prepare(t)

(* Once crashes stop: the newest driver goes on, so do its tasks, and if it has ended another is started. *)
Fairness ==
    /\ \A d \in Drivers :
        /\ WF_vars(store.fence = d /\ Step(d))
        /\ WF_vars(store.fence = d /\ \E t \in tasks : t.record.fence = d /\ Prepare(t))
        /\ WF_vars(store.fence = d - 1 /\ (d = 1 \/ (d > 1 /\ At(d - 1, "stopped"))) /\ TakeFence(d))

Spec == Init /\ [][Next]_vars /\ Fairness

-----------------------------------------------------------------------------
(* Safety *)

NothingUndecidedIsVisible ==
    \A s \in Sinks : \A v \in sink[s].visible : v.record \in store.decision[v.record.epoch]

NothingIsVisibleTwice ==
    \A s \in Sinks, e \in Epochs, k \in Slots : Copies(s, e, k) <= 1

NothingDecidedIsAborted ==
    \A s \in Sinks, e \in Epochs : \A r \in store.decision[e] : r \in sink[s].staged \/ IsVisible(s, r)

NoOlderFenceHasAnEffect == ~ trespass

AcknowledgedIsVisibleOnce ==
    \A e \in Epochs : e <= acked => \A s \in Sinks, k \in Slots : Copies(s, e, k) = 1

AggregatedEpochsAreWhole ==
    \A e \in Epochs : Shown("aggregated", e) = {} \/ {v.record.slot : v \in Shown("aggregated", e)} = Slots

RecoveryLeavesNoLitter ==
    \A d \in Drivers, s \in Sinks : At(d, "ready") => \A r \in sink[s].staged : r.fence >= d

NobodyIsRefusedInVain == \A d \in Drivers : ~ At(d, "refused")

OneDecisionIsOpen == Cardinality(OpenEpochs) <= 1

(* Liveness *)

EveryEpochArrives == <>[](acked = LastEpoch /\ \A s \in Sinks : sink[s].staged = {})
=============================================================================

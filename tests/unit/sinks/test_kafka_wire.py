"""What the brokers answer beside yes: who is never told may go on without the answer, and who is not told now may not."""

from types import SimpleNamespace

import pytest
from kafka import errors

from pakka.errors import SinkError, UnavailableError, UnknownOutcomeError
from pakka.kafka_line import Address
from pakka.kafka_transactions import CannotAskError
from pakka.sinks._kafka_batch import Handle
from pakka.sinks._kafka_mender import Mender
from pakka.sinks._kafka_raw import Registry
from pakka.sinks._kafka_wire import DeniedError

HELD = {("refunds", 0): 5}
NEVER_TOLD = [
    errors.TransactionalIdAuthorizationFailedError,
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.DelegationTokenAuthorizationFailedError,
    errors.UnsupportedVersionError,
    errors.IncompatibleBrokerVersion,
]
NOT_TOLD_NOW = [
    errors.UnknownError,
    errors.InvalidRequestError,
    errors.InvalidTxnStateError,
    errors.TransactionCoordinatorFencedError,
    errors.OperationNotAttemptedError,
]
TO_BE_MENDED = [errors.InvalidTransactionTimeoutError, errors.SaslAuthenticationFailedError]


class Answering(Registry):
    """A line by which a coordinator says no to whatever it is asked."""

    def __init__(self, error):
        super().__init__("sink", Address("127.0.0.1:1"))
        self.error = error

    def _open(self):
        def describe(_):
            raise self.error

        return SimpleNamespace(describe_transactions=describe)

    def _coordinator(self, ident, kind=None):
        return 1

    def _send(self, request, node):
        return SimpleNamespace(error_code=self.error.errno)


def mender(error):
    # Something is held, and the book is not asked for it.
    made = Mender(
        Answering(error), "pakka.refunds.out", SimpleNamespace(key=b"refunds.out", name="ledger"), "pakka.refunds.out"
    )
    made.held = lambda topics: HELD
    return made


@pytest.mark.parametrize("error", NEVER_TOLD)
def test_who_is_never_told_whose_it_is_goes_on_and_says_so(error, caplog):
    assert mender(error("no")).is_closed(["refunds"])
    assert mender(error("no")).settle(["refunds"], 1000) == {"refunds"}
    assert "it cannot be told whether one is ours" in caplog.text


@pytest.mark.parametrize("error", NOT_TOLD_NOW)
def test_an_answer_that_says_nothing_is_not_taken_for_closed(error):
    for ask in (lambda m: m.is_closed(["refunds"]), lambda m: m.settle(["refunds"], 1000)):
        with pytest.raises(UnavailableError, match=error.__name__):
            ask(mender(error("who knows")))


@pytest.mark.parametrize("error", TO_BE_MENDED)
def test_what_a_person_has_to_mend_stops_and_is_not_taken_for_closed(error):
    for ask in (lambda m: m.is_closed(["refunds"]), lambda m: m.settle(["refunds"], 1000)):
        with pytest.raises(SinkError) as told:
            ask(mender(error("no")))
        assert not isinstance(told.value, DeniedError)
        assert told.value.hint


def test_a_setting_that_the_line_does_not_have_is_not_taken_for_closed():
    with pytest.raises(SinkError, match="nothing for `x`") as told:
        mender(CannotAskError("kafka-python has nothing for `x` of `settings`")).is_closed(["refunds"])
    assert not isinstance(told.value, DeniedError)
    assert "kafka-python" in told.value.hint


def test_a_coordinator_that_does_not_know_what_it_has_done_leaves_the_end_unknown():
    handle = Handle("pakka.refunds.out", 7, 0)
    with pytest.raises(UnknownOutcomeError, match=r"no answer to the end of transaction `pakka\.refunds\.out`"):
        Answering(errors.UnknownError("?")).end(handle, is_commit=True)


def test_an_end_that_is_refused_is_known_not_to_be_done():
    handle = Handle("pakka.refunds.out", 7, 0)
    with pytest.raises(DeniedError):
        Answering(errors.TransactionalIdAuthorizationFailedError("no")).end(handle, is_commit=True)

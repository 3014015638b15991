"""The exceptions of this package. Their texts come from the library."""


class Error(Exception):
    """An error of a source, a monitor, or the lab; the base of all others."""


class SettingError(Error, ValueError):
    """A setting or a file is invalid."""


class ClosedError(Error):
    """The source or monitor has ended; make another one."""


class UndeliveredError(Error):
    """`Source.finish` ended before the monitor had all states and records."""


class PutError(Error, ValueError):
    """A topic did not accept a state or record, and keeps its previous state."""


class FullError(PutError):
    """The topic holds as many unsent records or keys as it can; try again later."""


class UnknownTopicError(Error, LookupError):
    """There is no topic of this name."""


class ScenarioError(Error, ValueError):
    """A scenario cannot be run."""


class CaptureError(Error, ValueError):
    """A file is not a packet capture, or none of its packets can be read."""

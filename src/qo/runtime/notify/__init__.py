"""How a notice reaches people. The front door is `qo.runtime.notifier`."""

"""The `qo` command: qo from a terminal and from scripts. One file a command; each is imported when it is called."""

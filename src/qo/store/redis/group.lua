-- group: a group as it is, with its slots.
--
-- Arguments  group
-- Answers    its status
-- flags no-writes
-- include lib/status.lua

return step.answer({ groups = { status.of(arguments.group, true) } })

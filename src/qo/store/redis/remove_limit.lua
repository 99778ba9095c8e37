-- remove_limit: the group is unlimited until somebody sets a limit again.
--
-- Arguments  group, only (a source: no other's limit goes), by
-- Events     limit. Audit "limit". Both only where there was one
-- flags allow-oom
-- include lib/limits.lua
-- include lib/wake.lua

limits.remove(arguments.group, arguments.only, arguments.by)
hand_over()
return step.answer({})

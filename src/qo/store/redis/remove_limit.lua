-- remove_limit: the group is unlimited until somebody sets a limit again.
--
-- Arguments  group, by
-- Events     limit. Audit "limit". Both only where there was one
-- flags allow-oom
-- include lib/limits.lua
-- include lib/wake.lua

local removed = limits.drop(arguments.group)
if removed then
  step.audit(arguments.by, 'limit', arguments.group, { limit = cjson.null, source = removed })
end
hand_over()
return step.answer({})

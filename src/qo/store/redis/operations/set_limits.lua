-- set_limits: the one limit a group has, and where it comes from.
--
-- Arguments  limits (without slots: to be removed, where `only` names a source only that one's), exactly (a source whose other limits go), by, undoes
-- Answers    limits that a stronger source keeps out; refused: changed_since
-- Events     limit, where changed. Audit "limit" for operators and the configuration, where changed
-- flags allow-oom
-- include lib/limits.lua
-- include lib/wake.lua
-- include lib/undoing.lua

for _, limit in ipairs(arguments.undoes and arguments.limits or NONE) do
  if not undoing.is_limit_of(groups.get(limit.group), arguments.undoes) then
    return undoing.refuse(limit.group, arguments.undoes)
  end
end
local ignored = {}
limits.apply(arguments.limits, arguments.by, ignored)
if arguments.exactly then
  limits.remove_others(arguments.limits, arguments.exactly, arguments.by)
end
hand_over()
return step.answer({ ignored = ignored })

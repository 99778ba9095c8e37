-- set_limits: the one limit a group has, and where it comes from.
--
-- Arguments  limits, by
-- Answers    limits that a stronger source keeps out
-- Events     limit, where changed. Audit "limit" for operators, where changed
-- flags allow-oom
-- include lib/limits.lua
-- include lib/wake.lua

local ignored = {}
limits.apply(arguments.limits, arguments.by, ignored)
hand_over()
return step.answer({ ignored = ignored })

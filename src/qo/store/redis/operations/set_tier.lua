-- set_tier: what a user's tier grants, applied at once to all their jobs that wait.
--
-- Arguments  user, standing, by
-- Answers    limits that a stronger source keeps out
-- Events     tier; limit; those of jobs that move forward. Audit "tier"
-- flags allow-oom
-- include lib/users.lua
-- include lib/wake.lua

local ignored = {}
step.event('tier', arguments.user, { tier = arguments.standing.tier })
local former = users.standing(arguments.user)
users.apply_standing(arguments.user, arguments.standing, true, nil, ignored)
step.audit(arguments.by, 'tier', arguments.user, {
  tier = arguments.standing.tier, from = former and former.tier or cjson.null,
})
hand_over()
return step.answer({ ignored = ignored })

-- usage: what a user was charged for the day of now.
--
-- Arguments  user
-- Answers    tier, daily_quota, used_today, deferred, today
-- flags no-writes
-- include lib/users.lua

local standing = users.standing(arguments.user) or NONE
return step.answer({
  tier = standing.tier, daily_quota = standing.daily_quota,
  used_today = quota.used_on(arguments.user, quota.day_of(step.now)),
  deferred = call('ZCARD', key('deferred:', arguments.user)), today = quota.day_of(step.now),
})

-- claim: take the first jobs in line whose every group has a free slot beside those that turns keep.
--
-- Arguments  worker, tasks, capacity, lease_ms, claim_id, suspects
-- Answers    the leases, and whether a bound was reached
-- Events     starting; failed; turn; those of catch_up
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/claiming.lua
-- include lib/wake.lua

local known = claiming.taken_before(arguments.claim_id)
if #known > 0 then
  return step.answer({ more = false }, claiming.leases(known))
end

local _, more_due = catch_up.run()
wake.forget(arguments.worker)
local taken, more = claiming.take(
  arguments.worker, arguments.tasks, arguments.capacity, arguments.lease_ms, arguments.claim_id, arguments.suspects
)
return step.answer({ more = more or more_due }, claiming.leases(taken))

-- revoke: end the lease of a slot's holder by hand.
--
-- Arguments  group, slot_id, force, by
-- Answers    the holder; refused: no_slot, alive
-- Events     lease_lost and the job's new state. Audit "release"
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua

local slot = arguments.slot_id
local token = call('ZRANGEBYSCORE', key('held:', arguments.group), slot, slot)[1]
if not token then
  return step.refuse('no_slot')
end
local holder = lease.get(token).holder
if lease.end_of(token) > step.counted_now() and not arguments.force then
  return step.refuse('alive', { holder = holder })
end
lease.lose({ token }, 'revoked')
step.audit(arguments.by, 'release', arguments.group, { slot = slot, holder = holder, force = arguments.force })
hand_over()
return step.answer({ holder = holder })

-- wait_for_work: whether a claim for these tasks might find something now; if not, the worker is put down as idle.
--
-- Arguments  worker, tasks, suspects, idle_ms, offer (lease_ms, claim_id) if it has made one
-- Answers    the leases of its offer, if a job has been claimed for it; else whether there is something to claim, and
--            if not, in how many milliseconds something comes due, if anything does
-- Events     none
-- flags allow-oom
-- include lib/wake.lua

local function next_due()
  return math.min(
    step.soonest_on_the_clock('due'), step.soonest_on_the_clock('spans'), step.soonest_on_the_clock('closed'),
    step.soonest_on_the_clock('expiry'), step.soonest_on_the_clock('start_by'),
    step.soonest_on_the_clock('steady_start_by')
  )
end

local function put_down(drains)
  for _, task in ipairs(arguments.tasks) do
    call('ZADD', key('idle:', task), step.now + arguments.idle_ms, arguments.worker)
  end
  call_in_parts('SADD', key('idle_tasks'), arguments.tasks)
  call('HSET', key('idle_workers'), arguments.worker, cmsgpack.pack({
    tasks = arguments.tasks, offer = arguments.offer, suspects = arguments.suspects,
  }))
  if drains then
    call('SADD', key('draining'), arguments.worker)
  elseif suspects.are_there() then
    call('SREM', key('draining'), arguments.worker)
  end
end

wake.forget(arguments.worker)
local taken = arguments.offer and claiming.taken_before(arguments.offer.claim_id) or NONE
if #taken > 0 then
  return step.answer({ claimable = false }, claiming.leases(taken))
end
local due_at = next_due()
if due_at <= step.now then
  return step.answer({ claimable = true })
end
local taker = taking.taker(arguments.worker, arguments.suspects)
local is_claimable, drains = taking.might_find(taker, arguments.tasks)
if is_claimable then
  return step.answer({ claimable = true })
end
if arguments.idle_ms > 0 then
  put_down(drains)
end
return step.answer({ claimable = false, due_in_ms = due_at < NEVER / 2 and due_at - step.now or nil })

-- Waking idle workers: as many as jobs became claimable in this step, each on its own channel, never all.
-- A worker that finds no job registers as idle for its tasks (wait_for_work). If it makes an offer, this step claims a
-- job for it, and the message contains the lease.
-- An idle worker knows when the next job or lease is due, and claims then. When a step makes something due sooner, it
-- notifies one idle worker. If that worker ends meanwhile, the upkeep of any other worker finds the due job.
--
-- `idle_workers` has the workers that are idle now. In `idle:<task>` a name stays until a later step finds it there: a
-- worker may have many tasks and is soon idle again, and removing it from all of them would delay the start of a job.
-- include lib/claiming.lua
-- include lib/reopened.lua
-- exports wake

local wake = {}
local ROUNDS_AT_MOST = 8 -- of waking in one step; what is left then is found when workers look again
local TOLD_AT_MOST = 10 -- of those put down as idle for a task who do not listen any more

local function idle_state(worker)
  -- The tasks and the offer that it registered.
  local text = call('HGET', key('idle_workers'), worker)
  return text and cmsgpack.unpack(text)
end

function wake.forget(worker)
  -- The worker is not idle any more.
  call('HDEL', key('idle_workers'), worker)
end

function wake.forget_wholly(worker, task_names)
  -- The worker has left.
  wake.forget(worker)
  for _, task in ipairs(task_names) do
    call('ZREM', key('idle:', task), worker)
  end
end

local function is_idle_for(task, idle)
  for _, name in ipairs(idle and idle.tasks or NONE) do
    if name == task then
      return true
    end
  end
  return false
end

local function longest_idle(task, passed)
  -- The worker that has been idle for longest, after those that this step has woken, and what it registered.
  while true do
    local worker, until_when = unpack(call('ZRANGE', key('idle:', task), passed, passed, 'WITHSCORES'))
    if not worker then
      return
    end
    local idle = idle_state(worker)
    local is_put_down = is_idle_for(task, idle)
    if is_put_down and tonumber(until_when) > step.now then
      return worker, idle
    end
    call('ZREM', key('idle:', task), worker)
    if is_put_down then
      wake.forget(worker) -- it should have looked again by now
    end
  end
end

local function is_listening(worker)
  -- A killed worker stays registered as idle for some seconds; a job claimed for it would have to wait for its lease.
  return call('PUBSUB', 'SHARDNUMSUB', key('wake:', worker))[2] > 0
end

local given_bytes -- in this step, for offers
local has_claimed -- for an idle worker, since groups were last looked at

at_the_beginning[#at_the_beginning + 1] = function()
  given_bytes, has_claimed = 0, false
end

local function claim_for(worker, idle)
  -- The message for the worker, and the task of its job. Only a request to look if a bound ended the search; nil when
  -- there was no job to claim.
  local offer = idle.offer
  lease.begin_claim(offer.claim_id)
  local taken, more, taken_bytes = claiming.take(worker, idle.tasks, 1, offer.lease_ms, offer.claim_id, idle.suspects)
  given_bytes, has_claimed = given_bytes + taken_bytes, true
  if taken[1] then
    return claiming.leases(taken)[1], tasks.source_of(taken[1].row)
  end
  return more and '' or nil
end

local function tell(worker, message)
  wake.forget(worker)
  call('SPUBLISH', key('wake:', worker), message)
end

local function takes_offer(worker, idle)
  return idle.offer and given_bytes < step.bounds.claim_bytes and is_listening(worker)
end

local function could_take_from(source, worker, idle, is_offering)
  if suspects.are_there() then
    local finds, drains = taking.could_take_from(source, worker, idle.tasks, idle.suspects)
    if drains then
      call('SADD', key('draining'), worker) -- since it fell asleep, a last suspect has become a candidate
    end
    return finds
  elseif is_offering or not turns.are_there() then
    return true -- the claim for an offer finds out by itself whether the free slots are kept
  end
  return (taking.might_find(taking.taker(worker, idle.suspects), idle.tasks))
end

local function wake_for(source, counts)
  -- Wakes as many workers as there are claimable jobs of this source. A worker may get a job of another one; the number
  -- of jobs of this one is then the same as before.
  local task, passed = tasks.of_source(source), 0
  while counts[source] > 0 and groups.gates_open(task) do
    local worker, idle = longest_idle(task, passed)
    if not worker then
      return
    end
    passed = passed + 1
    local is_offering, message, given = takes_offer(worker, idle), nil, nil
    if could_take_from(source, worker, idle, is_offering) then
      message = ''
      if is_offering then
        message, given = claim_for(worker, idle)
      end
    end
    if message then
      given = given or source
      counts[given] = (counts[given] or 0) - 1
      tell(worker, message)
    elseif not suspects.are_there() then
      return -- then no worker of this task would find a job
    end
  end
end

local function wake_draining()
  -- Workers that waited to become empty for a last suspect, and need not any more.
  if not suspects.were_there() then
    return
  end
  for _, worker in ipairs(call('SMEMBERS', key('draining'))) do
    local idle = idle_state(worker)
    local finds = idle and taking.might_find(taking.taker(worker, idle.suspects), idle.tasks)
    if finds then
      tell(worker, '')
    end
    if finds or not idle then
      call('SREM', key('draining'), worker)
    end
  end
end

local function wake_for_all(counts)
  local names = {}
  for task in pairs(counts) do
    names[#names + 1] = task
  end
  for _, task in ipairs(names) do
    if task ~= CALLERS then
      wake_for(task, counts)
    end
  end
end

local function count_ready(task, wanted)
  local jobs, count = rows.of(call('ZRANGE', written(key('ready:', task)), 0, wanted - 1)), 0
  line.look_up_lanes(jobs)
  for _, row in ipairs(jobs) do
    count = count + lanes.length(line.lane_of(row))
  end
  return count
end

local function count_open(task, wanted)
  local names, count = call('ZRANGE', written(key('open:', task)), 0, wanted - 1), 0
  groups.load(names)
  for _, name in ipairs(names) do
    local parked = tonumber(call('HGET', key('parks:', name), task))
    count = count + math.min(groups.free_slots(groups.get(name)), parked)
  end
  return count
end

local function add_behind_gate(gate, task, idle)
  -- No more jobs are counted than workers could be woken. A lane or an open group has at least one, so no more of them
  -- are read either.
  local wanted = math.min(groups.free_slots(gate), idle)
  if wanted <= 0 then
    return
  end
  local count = count_ready(task, wanted)
  if count < wanted then
    count = count + count_open(task, wanted - count)
  end
  groups.add_claimable(task, math.min(count, wanted))
end

local function count_behind_gates()
  -- A gate that has room again makes the jobs behind it claimable.
  for _, gate in ipairs(groups.opened()) do
    local task_names = gate.name == 'global' and call('SMEMBERS', key('idle_tasks')) or { gate.name }
    for _, task in ipairs(task_names) do
      local idle = call('ZCARD', key('idle:', task))
      if idle > 0 then
        for _, source in ipairs(tasks.sources(task)) do
          add_behind_gate(gate, source, idle)
        end
      elseif gate.name == 'global' then
        call('SREM', key('idle_tasks'), task)
      end
    end
  end
end

local function tell_to_look_again()
  for _, task in ipairs(call('SMEMBERS', key('idle_tasks'))) do
    for passed = 0, TOLD_AT_MOST - 1 do
      local worker = longest_idle(task, passed)
      if not worker then
        break
      end
      if call('SPUBLISH', key('wake:', worker), LOOK_AGAIN) > 0 then
        return
      end
    end
  end
end

local function claimable_by_task()
  count_behind_gates()
  local counts = {} -- as they are now: claims for workers change them
  for task, count in pairs(groups.made_claimable()) do
    counts[task] = count
  end
  return counts
end

local function is_more_open()
  -- Whether claims for idle workers have changed which slots are kept, so that others have room again.
  if not has_claimed then
    return false
  end
  has_claimed = false
  groups.forget_room()
  return reopened.look()
end

local function made_claimable_by_claims()
  -- By task: what claims for idle workers have made claimable, by quota that was given back or slots that are not kept
  -- any more.
  local counts = overdue.take_joined()
  if is_more_open() then
    for task, count in pairs(claimable_by_task()) do
      counts[task] = (counts[task] or 0) + count
    end
  end
  return counts
end

local function wake_workers()
  lanes.settle()
  reopened.look()
  overdue.take_joined() -- counted already
  local counts, rounds = claimable_by_task(), 0
  while rounds < ROUNDS_AT_MOST and next(counts) do
    wake_for_all(counts)
    counts = made_claimable_by_claims()
    rounds = rounds + 1
  end
  wake_draining()
  if step.comes_sooner then
    tell_to_look_again()
  end
end

at_the_end[#at_the_end + 1] = wake_workers

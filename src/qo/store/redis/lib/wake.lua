-- Waking idle workers: as many as jobs became claimable in this step, each on its own channel, never all.
-- A worker that finds nothing to claim puts itself down as idle for its tasks until it looks again (wait_for_work).
-- One that offers to has a job claimed for it in this step, and is told of it instead of only woken.
-- An idle worker knows when the next thing comes due, and looks then. When a step makes something come due sooner, one
-- idle worker is told to look again: it then knows of that. Every worker's upkeep is the net, should that one go away.
--
-- Who is idle is in `idle_workers`. In `idle:<task>` a name stays until somebody meets it there: a worker may take many
-- tasks, is soon idle again, and a job that starts would have to wait until it is out of all of them.
-- include lib/claiming.lua
-- exports wake

local wake = {}
local LOOK_AGAIN = 'look' -- known to `store/redis/store.py`
local TOLD_AT_MOST = 10 -- of those put down as idle for a task who do not listen any more

local function idle_state(worker)
  -- What it was put down with.
  local text = call('HGET', key('idle_workers'), worker)
  return text and cmsgpack.unpack(text)
end

function wake.forget(worker)
  -- It is not idle.
  call('HDEL', key('idle_workers'), worker)
end

function wake.forget_wholly(worker, task_names)
  -- It will not come back.
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
  -- Who has been idle for longest, behind the so many that this step has woken, and what it was put down with.
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
  -- A worker that was killed stays down as idle for some seconds, and a job claimed for it would wait for its lease.
  return call('PUBSUB', 'SHARDNUMSUB', key('wake:', worker))[2] > 0
end

local given_bytes -- in this step, for offers

at_the_beginning[#at_the_beginning + 1] = function()
  given_bytes = 0
end

local function claim_for(worker, idle)
  -- What to tell it, and of which task its job is. Only to look, if a bound ended the search; nothing when there was
  -- nothing to claim.
  local offer = idle.offer
  lease.begin_claim(offer.claim_id)
  local taken, more, taken_bytes = claiming.take(worker, idle.tasks, 1, offer.lease_ms, offer.claim_id)
  given_bytes = given_bytes + taken_bytes
  if taken[1] then
    return claiming.leases(taken)[1], taken[1].row.task
  end
  return more and '' or nil
end

local function wake_for(task, counts)
  -- As many as there are jobs of this task to claim. What a worker is given may be of another one, and then there are
  -- as many of this task as before.
  local woken = 0
  while counts[task] > 0 and groups.gates_open(task) do
    local worker, idle = longest_idle(task, woken)
    if not worker then
      return
    end
    local message, given = '', nil
    if idle.offer and given_bytes < step.bounds.claim_bytes and is_listening(worker) then
      message, given = claim_for(worker, idle)
      if not message then
        return -- then nobody who takes this task would find anything
      end
    end
    given = given or task
    counts[given] = (counts[given] or 0) - 1
    woken = woken + 1
    wake.forget(worker)
    call('SPUBLISH', key('wake:', worker), message)
  end
end

local function candidates_of(task)
  return call('ZCARD', written(key('ready:', task))) + call('ZCARD', written(key('open:', task)))
end

local function count_behind_gates()
  -- A gate that has room again makes claimable what waited behind it.
  for _, group in ipairs(groups.opened()) do
    local free = group.limit and group.limit - group.active or math.huge
    if group.name == 'global' then
      for _, task in ipairs(call('SMEMBERS', key('idle_tasks'))) do
        if call('EXISTS', key('idle:', task)) == 1 then
          groups.add_claimable(task, math.min(free, candidates_of(task)))
        else
          call('SREM', key('idle_tasks'), task)
        end
      end
    elseif call('EXISTS', key('idle:', group.name)) == 1 then
      groups.add_claimable(group.name, math.min(free, candidates_of(group.name)))
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

local function wake_workers()
  groups.settle()
  count_behind_gates()
  local counts = {} -- as they are now: claims for workers change them
  for task, count in pairs(groups.made_claimable()) do
    counts[task] = count
  end
  local names = {}
  for task in pairs(counts) do
    names[#names + 1] = task
  end
  for _, task in ipairs(names) do
    if task ~= CALLERS then
      wake_for(task, counts)
    end
  end
  if step.comes_sooner then
    tell_to_look_again()
  end
end

at_the_end[#at_the_end + 1] = wake_workers

-- A worker that looks for jobs, and what it may take of suspects. The rules are in `policy/suspects.py`.
-- include lib/walk.lua
-- include lib/workers.lua
-- exports taking

local taking = {}

function taking.is_alone(worker, held)
  -- Whether the worker, which holds so many jobs, runs a last suspect.
  if held ~= 1 then
    return false
  end
  local token = call('SMEMBERS', written(key('running:', worker)))[1]
  return lease.get(token).is_alone or false
end

function taking.taker(worker, most)
  -- `most` suspects; any number for nil.
  local taker = { worker = worker, left = most or math.huge, held = 0, is_alone = false }
  taker.there_are = suspects.are_there()
  if taker.there_are then
    taker.held = call('SCARD', written(key('running:', worker)))
    taker.is_alone = taking.is_alone(worker, taker.held)
  end
  return taker
end

function taking.sources(taker, task_names)
  -- The tasks and, as tasks of their own, their suspects.
  if not taker.there_are then
    return task_names
  end
  local names = {}
  for _, task in ipairs(taker.is_alone and NONE or task_names) do
    names[#names + 1] = task
    names[#names + 1] = tasks.source(task, SUSPECT)
    names[#names + 1] = tasks.source(task, LAST_SUSPECT)
  end
  return names
end

local function heard_of()
  -- The live workers that were heard of in the last lease, by name.
  local found, since = {}, step.now - step.counter('lease_ms')
  for _, worker in ipairs(workers.live()) do
    if worker.heard_at > since then
      found[#found + 1] = worker
    end
  end
  return found
end

local function empties_itself(taker, task)
  -- Whether it is the worker that takes nothing more while a last suspect of the task waits.
  taker.others = taker.others or heard_of()
  local fewest, chosen
  for _, worker in ipairs(taker.others) do
    local held = worker.name == taker.worker and taker.held or worker.running
    if workers.takes(worker, task) and (not fewest or held < fewest) then
      fewest, chosen = held, worker.name
    end
  end
  return chosen == taker.worker
end

function taking.passes(taker, source)
  -- Whether it neither takes jobs of this source nor ends its search at one.
  if not taker.there_are then
    return not groups.gates_open(source)
  end
  local task, suspicion = tasks.of_source(source)
  if not groups.gates_open(task) then
    return true
  elseif not suspicion then
    return false
  elseif suspicion == LAST_SUSPECT and taker.held > 0 then
    return not empties_itself(taker, task)
  end
  return taker.left == 0
end

function taking.may_take(taker, suspicion)
  -- False: the worker has to become empty first.
  return suspicion ~= LAST_SUSPECT or taker.held == 0
end

function taking.note(taker, suspicion)
  -- The worker has taken such a job. Returns whether it takes no other beside it.
  taker.held = taker.held + 1
  if suspicion then
    taker.left = taker.left - 1
  end
  return suspicion == LAST_SUSPECT
end

-- --- whether there is something to take -----------------------------------------------------------------------------

local function head(source)
  -- The key of the first candidate, its number if it is ready, else the group in which it is parked; nil for none.
  local gate = groups.get((tasks.of_source(source)))
  local ready = call('ZRANGE', written(key('ready:', source)), 0, 0, 'WITHSCORES')
  -- All of these groups have a free slot. It may be kept in as many as that.
  local open = call('ZRANGE', written(key('open:', source)), 0, kept.count(), 'WITHSCORES')
  local ready_key = tonumber(ready[2])
  for i = 1, #open, 2 do
    local open_key = tonumber(open[i + 1])
    if ready_key and ready_key < open_key or not groups.has_room_for(gate, open_key) then
      break
    elseif groups.has_room_for(groups.get(open[i]), open_key) then
      return open_key, nil, open[i]
    end
  end
  if ready_key and groups.has_room_for(gate, ready_key) then
    return ready_key, ready[1], nil
  end
end

local function is_there(source)
  if kept.count() == 0 then
    return call('EXISTS', written(key('ready:', source)), written(key('open:', source))) > 0
  end
  return head(source) ~= nil
end

local function is_any_there(taker, task_names)
  for _, task in ipairs(task_names) do
    if not taking.passes(taker, task) and is_there(task) then
      return true
    end
  end
  return false
end

local function first_of_all(taker, task_names)
  -- The source with the first candidate of all, and that candidate.
  local best, first
  for _, source in ipairs(taking.sources(taker, task_names)) do
    if not taking.passes(taker, source) then
      local order_key, number, group = head(source)
      if order_key and (not best or order_key < first.key) then
        best, first = source, { key = order_key, number = number, group = group }
      end
    end
  end
  return best, first
end

local function is_blocked(source, first)
  local number = first.number or call('ZRANGE', written(key('parked:', source, first.group)), 0, 0)[1]
  return groups.first_without_room(tasks.groups_of(rows.get(number)), GATES + 1, first.key) ~= nil
end

local function is_found(taker, task_names)
  if not taker.there_are then
    return is_any_there(taker, task_names), false
  end
  local best, first = first_of_all(taker, task_names)
  if not best then
    return false, false
  end
  local _, suspicion = tasks.of_source(best)
  -- A last suspect that is blocked is for a claim to find out and to put aside.
  local drains = not taking.may_take(taker, suspicion) and not is_blocked(best, first)
  return not drains, drains
end

function taking.might_find(taker, task_names)
  -- Whether a claim might find something; if not, whether that is because the worker has to become empty first.
  if line.length() == 0 then
    return false, false
  end
  kept.begin()
  local finds, drains = is_found(taker, task_names)
  kept.forget()
  return finds, drains
end

function taking.could_take_from(source, worker, task_names, most)
  -- Whether a job of this source could be for the worker, and its claim might find something; if not, whether that is
  -- because the worker has to become empty first.
  local taker = taking.taker(worker, most)
  local _, suspicion = tasks.of_source(source)
  if taker.is_alone or taking.passes(taker, source) or not taking.may_take(taker, suspicion) then
    return false, false
  end
  return taking.might_find(taker, task_names)
end

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
  local ready = call('ZRANGE', written(key('ready:', source)), 0, 0, 'WITHSCORES')
  local open = call('ZRANGE', written(key('open:', source)), 0, 0, 'WITHSCORES')
  local ready_key, open_key = tonumber(ready[2]), tonumber(open[2])
  if open_key and not (ready_key and ready_key < open_key) then
    return open_key, nil, open[1]
  end
  return ready_key, ready[1], nil
end

local function is_blocked(source, number, group)
  number = number or call('ZRANGE', written(key('parked:', source, group)), 0, 0)[1]
  return groups.first_without_room(tasks.groups_of(rows.get(number)), GATES + 1) ~= nil
end

local function is_there(source)
  return call('EXISTS', written(key('ready:', source)), written(key('open:', source))) > 0
end

function taking.might_find(taker, task_names)
  -- Whether a claim might find something; if not, whether that is because the worker has to become empty first.
  if line.length() == 0 then
    return false, false
  end
  local best, best_key, number, group
  for _, source in ipairs(taking.sources(taker, task_names)) do
    if not taking.passes(taker, source) then
      if not taker.there_are then
        if is_there(source) then
          return true, false
        end
      else
        local found, its_number, its_group = head(source)
        if found and (not best_key or found < best_key) then
          best, best_key, number, group = source, found, its_number, its_group
        end
      end
    end
  end
  if not best then
    return false, false
  end
  local _, suspicion = tasks.of_source(best)
  -- A last suspect that is blocked is for a claim to find out and to put aside.
  local drains = not taking.may_take(taker, suspicion) and not is_blocked(best, number, group)
  return not drains, drains
end

function taking.could_take_from(source, worker, task_names, most)
  -- Whether a job of this source could be for the worker, and its claim might find something.
  if not suspects.are_there() then
    return true
  end
  local taker = taking.taker(worker, most)
  local _, suspicion = tasks.of_source(source)
  if taker.is_alone or taking.passes(taker, source) or not taking.may_take(taker, suspicion) then
    return false
  end
  return (taking.might_find(taker, task_names))
end

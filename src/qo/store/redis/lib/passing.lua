-- The end of a walk: jobs and callers that were passed in it are counted, and those that were passed often enough take a
-- turn. `passed` and `turns` in `store/__init__.py`.
-- include lib/kept.lua
-- include lib/line.lua
-- exports passing

local passing = {}
local put_aside -- the jobs and tickets that this walk has looked at and parked
local takers -- by name of a group with a limit: the keys of those that took a slot of it, in ascending order

local function begin()
  put_aside, takers = {}, {}
end

at_the_beginning[#at_the_beginning + 1] = begin

function passing.note_aside(waiting)
  put_aside[#put_aside + 1] = waiting
end

function passing.note_taker(order_key, names)
  kept.ended(order_key)
  for _, group in ipairs(groups.of(names)) do
    if group.limit then
      takers[group.name] = takers[group.name] or {}
      table.insert(takers[group.name], order_key)
    end
  end
end

-- --- counting ---------------------------------------------------------------------------------------------------

local function firsts_passed(name, keys)
  -- Of each task, suspects apart, and of the callers, the first one parked in this group, if a taker was behind it: each
  -- with its task and the number of those takers.
  local found = {}
  for _, task in ipairs(groups.tasks_parked(groups.get(name))) do
    local member, order_key = unpack(call('ZRANGE', written(key('parked:', task, name)), 0, 0, 'WITHSCORES'))
    local times = 0
    for i = #keys, 1, -1 do
      if keys[i] <= tonumber(order_key) then
        break
      end
      times = times + 1
    end
    if times > 0 then
      found[#found + 1] = { member = member, task = task, times = times }
    end
  end
  return found
end

local function add_passes(waiting, times, counted)
  if not counted[waiting] then
    counted[waiting] = true
    counted[#counted + 1] = waiting
  end
  waiting.passed = (waiting.passed or 0) + times
end

local function save(waiting)
  if waiting.number then
    rows.save(waiting)
  else
    tickets.keep(waiting)
  end
end

local function count_passes()
  -- All that were passed, in the order of the line.
  local counted = {}
  for _, waiting in ipairs(put_aside) do
    add_passes(waiting, 1, counted)
  end
  for name, keys in pairs(takers) do
    for _, first in ipairs(firsts_passed(name, keys)) do
      local waiting = first.task == CALLERS and tickets.get(first.member) or rows.get(first.member)
      add_passes(waiting, first.times, counted)
    end
  end
  for _, waiting in ipairs(counted) do
    save(waiting)
  end
  return kept.sort(counted)
end

-- --- taking a turn ----------------------------------------------------------------------------------------------

local function fits(all)
  if #all > step.bounds.turns then
    return false
  end
  local known, count = { global = true }, 0
  for _, turn in ipairs(all) do
    for _, name in ipairs(turn.names) do
      count = count + (known[name] and 0 or 1)
      known[name] = true
    end
  end
  return count <= step.bounds.turn_groups
end

local function keeps(turn, asking)
  for _, name in ipairs(turn.names) do
    if asking[name] and asking[name][1] == turn then
      return true
    end
  end
  return false
end

local function without(all, gone, more)
  local left = { more }
  for _, turn in ipairs(all) do
    if not gone[turn] then
      left[#left + 1] = turn
    end
  end
  return left
end

local function rests_to_end(new, all)
  -- The turns that end so that this one can begin; nil when it cannot. The same as in `policy/turns.py`.
  if fits(without(all, NONE, new)) then
    return NONE
  end
  local asking, ending = kept.by(all), {}
  for i = #all, 1, -1 do
    if not keeps(all[i], asking) then
      ending[all[i]] = true
      local staying = without(all, ending, new)
      if fits(staying) then
        return keeps(new, kept.by(kept.sort(staying))) and ending or nil
      end
    end
  end
end

local function take_turn(waiting, all)
  -- Returns whether it could.
  local new = kept.turn_of(waiting)
  local ending = rests_to_end(new, all)
  if not ending then
    return false
  end
  for turn in pairs(ending) do
    turns.lose(turn.waiting)
    save(turn.waiting)
  end
  turns.begin(waiting)
  save(waiting)
  step.figure('turns')
  step.event('turn', new.name, { passed = waiting.passed })
  return true
end

function passing.end_walk()
  kept.forget()
  local turn_after = step.counter('turn_after')
  if turn_after > 0 and (#put_aside > 0 or next(takers)) and (line.length() > 0 or tickets.are_there()) then
    lanes.settle()
    local all
    for _, waiting in ipairs(count_passes()) do
      if waiting.passed >= turn_after and not waiting.turn then
        all = all or kept.turns()
        if take_turn(waiting, all) then
          all = nil
        end
      end
    end
  end
  begin()
end

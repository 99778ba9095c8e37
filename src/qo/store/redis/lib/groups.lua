-- Groups during a step: who has room, who takes which slot, and the `open` index at its end.
--
-- After every step, a group is in open(task) if and only if it has room and something of that task is parked in
-- it, under the key of the first. `settle` makes it so for the groups whose room or parked jobs this step changed.
-- include lib/rows.lua
-- include lib/figure_names.lua
-- exports groups, CALLERS, TIER, TASK, SUBMIT

local groups = {}
local read -- by name, as this step sees them
local order -- their names, in the order in which they were read
local lists -- by list of names, of a job or a caller: its groups
local with_settings -- by list of names: the places in it of the groups that have settings, as of a count of changes
local settings_changed -- how often a group got its first settings or lost its last in this step
local touched -- those that were changed since they were settled
local spoken_for -- those with slots that are spoken for
local made_claimable -- by task: how many candidates this step has added

at_the_beginning[#at_the_beginning + 1] = function()
  read, order, made_claimable, touched, spoken_for = {}, {}, {}, {}, {}
  lists, with_settings, settings_changed = {}, {}, 0
end
local CALLERS = '' -- the "task" under which waiting callers are parked and opened
local TIER, TASK, SUBMIT = 3, 4, 5
local FREE_AT_ONCE = 16 -- how many free numbers are read at a time

local function remember(name, text)
  local group
  if text then
    group = cmsgpack.unpack(text)
    group.name, group.stored, group.spoken_for, group.last_job = name, true, 0, group.last_job or 0
    group.active = group.limit and call('ZCARD', written(key('held:', name))) or 0
    group.had_room = groups.has_room(group)
  else
    -- Made whole at once, because most groups have no settings and a table that grows costs more than all the rest.
    group = { name = name, stored = false, spoken_for = 0, last_job = 0, active = 0, had_room = true }
  end
  read[name] = group
  order[#order + 1] = name
  return group
end

function groups.get(name)
  return read[name] or remember(name, call('HGET', key('groups'), name))
end

function groups.load(names)
  -- Those not read yet, by one look for all. Names may be repeated.
  local missing, is_missing = {}, {}
  for _, name in ipairs(names) do
    if not read[name] and not is_missing[name] then
      is_missing[name] = true
      missing[#missing + 1] = name
    end
  end
  for i, text in ipairs(fields_of(key('groups'), missing)) do
    remember(missing[i], text)
  end
end

function groups.of(names)
  -- The groups of a job or a caller, whose list nobody changes, in its order.
  local found = lists[names]
  if not found then
    groups.load(names)
    found = {}
    for i, name in ipairs(names) do
      found[i] = read[name]
    end
    lists[names] = found
  end
  return found
end

local function places_with_settings(names)
  -- Most groups have none, and those always have room.
  local places = with_settings[names]
  if not places or places.as_of ~= settings_changed then
    places = { as_of = settings_changed }
    for i, group in ipairs(groups.of(names)) do
      if group.stored then
        places[#places + 1] = i
      end
    end
    with_settings[names] = places
  end
  return places
end

local function touch(group)
  if not group.is_touched then
    group.is_touched = true
    touched[#touched + 1] = group
  end
end

function groups.has_room(group)
  return not group.paused and not group.closed_until and (not group.limit or group.active < group.limit)
end

function groups.has_room_unspoken(group)
  return groups.has_room(group) and (not group.limit or group.active + group.spoken_for < group.limit)
end

function groups.gates_open(task)
  return groups.has_room(groups.get('global')) and groups.has_room(groups.get(task))
end

function groups.gates_open_unspoken(task)
  return groups.has_room_unspoken(groups.get('global')) and groups.has_room_unspoken(groups.get(task))
end

function groups.first_without_room(names, first)
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    if i >= first and not groups.has_room(all[i]) then
      return names[i]
    end
  end
end

local GROUPS_A_LOOK = 8

function groups.looks_of(count)
  -- As in `policy/groups.py`: what somebody of so many groups counts for towards the bounds of a step.
  return math.ceil(count / GROUPS_A_LOOK)
end

function groups.looks(names)
  return groups.looks_of(#names)
end

function groups.all_have_room_unspoken(names)
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    if not groups.has_room_unspoken(all[i]) then
      return false
    end
  end
  return true
end

function groups.speak_for(names)
  -- One slot in each of those that have a limit, until `forget_spoken_for`.
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    all[i].spoken_for = all[i].spoken_for + 1
    spoken_for[#spoken_for + 1] = all[i]
  end
end

function groups.forget_spoken_for()
  for _, group in ipairs(spoken_for) do
    group.spoken_for = 0
  end
  spoken_for = {}
end

-- --- slots ----------------------------------------------------------------------------------------------------

-- Of the numbers below the highest held, those that are not held are kept as free. So where none is free, the highest
-- is one less than the numbers held are.

local function held_count(group)
  -- Kept in memory only of a group with a limit.
  return group.limit and group.active or call('ZCARD', written(key('held:', group.name)))
end

local function lowest(numbers)
  local at = 1
  for i = 2, #numbers do
    if numbers[i] < numbers[at] then
      at = i
    end
  end
  return at
end

local function lowest_free(group)
  if group.limit and group.active == 0 and not group.returned then
    return nil
  end
  local free = group.free
  if not free or (free.at > #free and #free == FREE_AT_ONCE) then
    free = call('ZRANGE', written(key('free:', group.name)), 0, FREE_AT_ONCE - 1)
    free.at = 1
    group.free = free
  end
  return tonumber(free[free.at])
end

local function next_number(group)
  -- The lowest of those free or returned, else the one above the highest held.
  local free, returned = lowest_free(group), group.returned
  local at = returned and #returned > 0 and lowest(returned)
  if at and (not free or returned[at] < free) then
    return table.remove(returned, at)
  elseif free then
    later('ZREM', key('free:', group.name), group.free[group.free.at])
    group.free.at = group.free.at + 1
    return free
  end
  group.highest = (group.highest or held_count(group) - 1) + 1
  return group.highest
end

function groups.look_for_holders(wanted)
  -- By one look for all of them, before slots are taken there. Where nobody holds one, none is free either.
  local unknown, names
  for _, group in ipairs(wanted) do
    if not group.limit and not group.free and not group.returned then
      if not unknown then
        unknown, names = {}, {}
      end
      unknown[#unknown + 1] = group
      names[#names + 1] = group.name
    end
  end
  if not unknown then
    return
  end
  for i, is_held in ipairs(members_of(written(key('holding')), names)) do
    if is_held == 0 then
      unknown[i].free, unknown[i].highest = { at = 1 }, -1
    end
  end
end

function groups.take(name, token)
  local group = groups.get(name)
  touch(group)
  local number = next_number(group)
  if not group.limit or group.active == 0 then
    later('SADD', key('holding'), name)
  end
  group.active = group.active + 1
  later('ZADD', key('held:', name), number, token)
  return number
end

function groups.free(name, token, number)
  local group = groups.get(name)
  touch(group)
  group.active = group.active - 1
  group.returned = group.returned or {}
  group.returned[#group.returned + 1] = number
  later('ZREM', key('held:', name), token)
end

local function has_gaps(numbers)
  -- Whether any number below the highest of these is not among them.
  local highest = -1
  for _, number in ipairs(numbers) do
    highest = math.max(highest, number)
  end
  return #numbers <= highest
end

local function keep_free_numbers(group)
  local free, returned = key('free:', group.name), group.returned
  if held_count(group) == 0 then
    if has_gaps(returned) then
      call('DEL', written(free))
    end
    later('SREM', key('holding'), group.name)
  else
    local highest = tonumber(call('ZREVRANGE', written(key('held:', group.name)), 0, 0, 'WITHSCORES')[2])
    for _, number in ipairs(returned) do
      if number < highest then
        later('ZADD', free, number, number)
      end
    end
    call('ZREMRANGEBYSCORE', written(free), below(highest), '+inf')
  end
  group.returned, group.free, group.highest = nil, nil, nil
end

-- --- limits and pauses ----------------------------------------------------------------------------------------

function groups.store(group)
  -- A group with no settings leaves nothing.
  touch(group)
  local was_stored = group.stored
  group.stored = (group.limit or group.paused or group.closed_until) and true or false
  if group.stored ~= was_stored then
    settings_changed = settings_changed + 1
  end
  if group.stored then
    later('HSET', key('groups'), group.name, cmsgpack.pack({
      limit = group.limit, source = group.source, paused = group.paused or nil,
      closed_until = group.closed_until, last_job = group.last_job,
    }))
  else
    later('HDEL', key('groups'), group.name)
  end
  if group.closed_until then
    step.comes('closed', group.closed_until, group.name)
  else
    later('ZREM', key('closed'), group.name)
  end
  if group.source == TIER or group.source == SUBMIT then
    later('ZADD', key('limit_ages'), group.last_job, group.name)
  else
    later('ZREM', key('limit_ages'), group.name)
  end
end

function groups.mention(names, number)
  -- The newest job that named these groups, so that `forget` knows when nobody can need their limits.
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    all[i].last_job = tonumber(number)
    all[i].mentioned = true
  end
end

-- --- parked jobs and the open index ---------------------------------------------------------------------------

function groups.made_claimable()
  return made_claimable
end

function groups.opened()
  -- Those that have room again.
  local opened = {}
  for _, name in ipairs(order) do
    if read[name].opened then
      opened[#opened + 1] = read[name]
    end
  end
  return opened
end

function groups.add_claimable(task, count)
  made_claimable[task] = (made_claimable[task] or 0) + count
end

local function note_change(name, task)
  local group = groups.get(name)
  touch(group)
  group.changed = group.changed or {}
  group.changed[task] = true
end

function groups.put(name, task, member, order_key)
  -- Also where there is no room now: in the same step there may be again.
  note_change(name, task)
  later('ZADD', key('parked:', task, name), order_key, member)
  later('SADD', key('parks:', name), task)
end

function groups.park(name, task, member, order_key)
  groups.put(name, task, member, order_key)
  step.figure(figure_names.rejected(name))
end

function groups.unpark(name, task, member)
  note_change(name, task)
  later('ZREM', key('parked:', task, name), member)
end

local function refresh_open(group, task, room)
  -- Whether anything of the task is parked here, and if there is room, its first one in the index.
  local parked = written(key('parked:', task, group.name))
  local head = call('ZRANGE', parked, 0, 0, 'WITHSCORES')
  if not head[1] then
    later('SREM', key('parks:', group.name), task)
  end
  if room and head[1] then
    later('ZADD', key('open:', task), head[2], group.name)
  else
    later('ZREM', key('open:', task), group.name)
  end
  return head[1] and parked
end

local function room_changed(group, room)
  for _, task in ipairs(call('SMEMBERS', written(key('parks:', group.name)))) do
    local parked = refresh_open(group, task, room)
    if room and parked then
      local free = group.limit and group.limit - group.active
      local waiting = call('ZCARD', parked)
      groups.add_claimable(task, free and math.min(free, waiting) or waiting)
    end
  end
  if room then
    group.opened = true
  end
end

function groups.settle()
  local to_settle = touched
  touched = {}
  for _, group in ipairs(to_settle) do
    group.is_touched = nil
    local room = groups.has_room(group)
    if room ~= group.had_room then
      room_changed(group, room)
      group.had_room = room
    elseif group.changed then
      for task in pairs(group.changed) do
        refresh_open(group, task, room)
      end
    end
    group.changed = nil
    if group.returned then
      keep_free_numbers(group)
    end
  end
end

local function write_groups()
  groups.settle()
  for _, name in ipairs(order) do
    if read[name].mentioned and read[name].stored then
      groups.store(read[name])
    end
  end
end

at_the_end[#at_the_end + 1] = write_groups

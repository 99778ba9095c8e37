-- Groups during a step: their room, their slots, and the `open` index.
--
-- After every step, a group is in open(task) if and only if it has room and has lanes of that task parked, under the
-- key of the first one. `settle` ensures it for the groups whose room or parked lanes this step has changed.
-- include lib/rows.lua
-- include lib/slot_numbers.lua
-- include lib/figure_names.lua
-- exports groups, CALLERS

local groups = {}
local read -- by name, as this step sees them
local order -- their names, in the order in which they were read
local lists -- by list of names, of a job or a caller: its groups
local with_settings -- by list of names: the places in it of the groups that have settings, as of a count of changes
local settings_changed -- how often a group got its first settings or lost its last in this step
local touched -- those that were changed since they were settled
local spoken_for -- those with slots that are spoken for
local made_claimable -- by task: how many jobs this step has made claimable
local slots_changed -- whether this step has taken or freed a slot, or changed a limit or a pause

at_the_beginning[#at_the_beginning + 1] = function()
  read, order, made_claimable, touched, spoken_for = {}, {}, {}, {}, {}
  lists, with_settings, settings_changed, slots_changed = {}, {}, 0, false
end
local CALLERS = '' -- the "task" under which waiting callers are parked and opened

local function remember(name, text)
  local group
  if text then
    group = cmsgpack.unpack(text)
    group.name, group.stored, group.spoken_for, group.last_job = name, true, 0, group.last_job or 0
    group.active = group.limit and call('ZCARD', written(key('held:', name))) or 0
    group.had_room = groups.has_room(group)
  else
    -- All fields at once: a table that grows costs more than everything else here.
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
  -- Read all groups that were not read yet, in one command. Names may be repeated.
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
  -- The groups of a job or a caller, in the order of its list, which must not be changed.
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
  -- Most groups have no limit, and so always have room.
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

local function kept_before(group, order_key)
  -- How many slots are kept for a turn before this key; `lib/kept.lua` sets `kept_from` during a walk.
  return group.kept_from and order_key and group.kept_from < order_key and 1 or 0
end

function groups.has_room_for(group, order_key)
  -- For the job or caller with this key. Without a key: whether it has room at all.
  return groups.has_room(group)
    and (not group.kept_from or group.active + kept_before(group, order_key) < group.limit)
end

function groups.has_room_unspoken(group, order_key)
  return groups.has_room(group)
    and (not group.limit or group.active + group.spoken_for + kept_before(group, order_key) < group.limit)
end

function groups.gates_open(task)
  return groups.has_room(groups.get('global')) and groups.has_room(groups.get(task))
end

function groups.gates_open_unspoken(task)
  return groups.has_room_unspoken(groups.get('global')) and groups.has_room_unspoken(groups.get(task))
end

function groups.first_without_room(names, first, order_key)
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    if i >= first and not groups.has_room_for(all[i], order_key) then
      return names[i]
    end
  end
end

function groups.looks_of(count)
  -- As `looks` in `values/bounds.py`: how many looks a job of so many groups counts as.
  return math.ceil(count / GROUPS_A_LOOK)
end

function groups.looks(names)
  return groups.looks_of(#names)
end

function groups.all_have_room_unspoken(names, order_key)
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    if not groups.has_room_unspoken(all[i], order_key) then
      return false
    end
  end
  return true
end

function groups.speak_for(names)
  -- Leave one slot in each of these groups that has a limit, until `forget_spoken_for`.
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

function groups.look_for_holders(wanted)
  -- Read for all groups in one command, before slots are taken. A group without holders has no free numbers.
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
  slots_changed = true
  local number = slot_numbers.next(group)
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
  slots_changed = true
  group.active = group.active - 1
  group.returned = group.returned or {}
  group.returned[#group.returned + 1] = number
  later('ZREM', key('held:', name), token)
end

-- --- limits and pauses ----------------------------------------------------------------------------------------

function groups.store(group)
  -- A group without settings has no entry.
  touch(group)
  slots_changed = true
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
  -- The newest job that named these groups, so that `forget` knows when no job can need their limits.
  local all = groups.of(names)
  for _, i in ipairs(places_with_settings(names)) do
    all[i].last_job = tonumber(number)
    all[i].mentioned = true
  end
end

-- --- parked lanes and the open index --------------------------------------------------------------------------

function groups.slots_changed()
  return slots_changed
end

function groups.made_claimable()
  return made_claimable
end

function groups.opened()
  -- The groups that have room again.
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

function groups.note_parked(name, task, jobs)
  -- The lanes of the task that are parked here have changed, and have so many more jobs than before; 0 where only the
  -- first one of a lane did.
  local group = groups.get(name)
  touch(group)
  group.parked = group.parked or {}
  group.parked[task] = (group.parked[task] or 0) + jobs
  group.parks = nil
end

function groups.tasks_parked(group)
  -- The tasks of all that is parked in the group, which must be settled.
  return group.parks or call('HKEYS', key('parks:', group.name))
end

local function free_slots(group)
  return group.limit and group.limit - group.active or math.huge
end
groups.free_slots = free_slots

local function count_parked(group)
  for task, jobs in pairs(group.parked or NONE) do
    if jobs ~= 0 and call('HINCRBY', key('parks:', group.name), task, jobs) == 0 then
      call('HDEL', key('parks:', group.name), task)
    end
  end
end

local function refresh_open(group, task, room)
  local first = room and call('ZRANGE', written(key('parked:', task, group.name)), 0, 0, 'WITHSCORES') or NONE
  if first[1] then
    later('ZADD', key('open:', task), first[2], group.name)
  else
    later('ZREM', key('open:', task), group.name)
  end
end

local function room_changed(group, room)
  local stored, parked = call('HGETALL', key('parks:', group.name)), {}
  for task in pairs(group.parked or NONE) do
    parked[task] = 0 -- it may have nothing here any more, and still be in the index
  end
  group.parks = {}
  for i = 1, #stored, 2 do
    parked[stored[i]] = tonumber(stored[i + 1])
    group.parks[#group.parks + 1] = stored[i]
  end
  for task, jobs in pairs(parked) do
    refresh_open(group, task, room)
    if room then
      groups.add_claimable(task, math.min(free_slots(group), jobs))
    end
  end
  if room then
    group.opened = true
  end
end

function groups.note_room(group)
  -- The group has room for more than before, though it had room already.
  room_changed(group, true)
end

function groups.forget_room()
  -- Workers were woken for all that has room by now.
  made_claimable = {}
  for _, name in ipairs(order) do
    read[name].opened = nil
  end
end

local function parked_changed(group)
  -- Without room, the group is not in the index, and what is parked in it changes nothing there.
  for task, jobs in pairs(group.parked or NONE) do
    refresh_open(group, task, true)
    if jobs > 0 then
      groups.add_claimable(task, math.min(free_slots(group), jobs))
    end
  end
end

function groups.settle()
  if #touched == 0 then
    return
  end
  local to_settle = touched
  touched = {}
  for _, group in ipairs(to_settle) do
    group.is_touched = nil
    count_parked(group)
    local room = groups.has_room(group)
    if room ~= group.had_room then
      room_changed(group, room)
      group.had_room = room
    elseif room then
      parked_changed(group)
    end
    group.parked = nil
    if group.returned then
      slot_numbers.keep_free(group)
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

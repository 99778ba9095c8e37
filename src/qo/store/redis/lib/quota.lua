-- A user's daily quota: charge it, defer a job to a later day, move deferred jobs forward when there is room.
-- A deferred job's due time is within the day that it is charged to, so its day is known by its time.
-- include lib/limits.lua
-- exports quota

local quota = {}

function quota.day_of(at)
  return math.floor(at / DAY_MS)
end

local function midnight(day)
  return day * DAY_MS
end
quota.midnight = midnight

local used -- by user: what was charged, by day

at_the_beginning[#at_the_beginning + 1] = function()
  used = {}
end

local function days_of(user)
  if not used[user] then
    used[user] = {}
    local stored = call('HGETALL', written(key('quota:', user)))
    for i = 1, #stored, 2 do
      used[user][tonumber(stored[i])] = tonumber(stored[i + 1])
    end
  end
  return used[user]
end

local function member_of_day(user, day)
  return string.format('%06d', day) .. user
end

function quota.used_on(user, day)
  return days_of(user)[day] or 0
end

function quota.charge(user, day, change)
  local days = days_of(user)
  days[day] = (days[day] or 0) + change
  if days[day] > 0 then
    later('HSET', key('quota:', user), day, days[day])
    later('ZADD', key('quota_days'), day, member_of_day(user, day))
  else
    days[day] = nil
    later('HDEL', key('quota:', user), day)
    later('ZREM', key('quota_days'), member_of_day(user, day))
  end
end

function quota.forget_day(member)
  local day, user = tonumber(member:sub(1, 6)), member:sub(7)
  days_of(user)[day] = nil
  later('HDEL', key('quota:', user), day)
  later('ZREM', key('quota_days'), member)
  return user
end

function quota.has_none(user)
  return next(days_of(user)) == nil
end

function quota.first_day_with_room(user, day, size)
  local days = days_of(user)
  while days[day] and days[day] >= size do
    day = day + 1
  end
  return day
end

local function deferred_on(user, day)
  local found = call(
    'ZRANGEBYSCORE', written(key('deferred:', user)), midnight(day), below(midnight(day + 1)), 'WITHSCORES'
  )
  local others, times = {}, {}
  for i = 1, #found, 2 do
    others[#others + 1] = found[i]
    times[#times + 1] = tonumber(found[i + 1])
  end
  return others, times
end

local function add_time(times, new)
  local taken = {}
  for _, time in ipairs(times) do
    taken[time] = true
  end
  while taken[new] do
    new = new + 1
  end
  times[#times + 1] = new
  table.sort(times)
end

function quota.defer(row, day, time)
  -- Give a job a due time on this day, after all other deferred jobs of the user.
  local others, times = deferred_on(row.user, day)
  add_time(times, time)
  rows.load(others)
  for i, number in ipairs(others) do
    local other = rows.get(number)
    if other.run_at ~= times[i] then
      other.run_at = times[i]
      line.set_deferred(other, true)
      if other.due_at then
        line.wait_until_due(other)
      end
    end
  end
  row.run_at, row.steady_at = times[#times], nil
  row.quota_day = day
  line.set_deferred(row, true)
end

local function bring_to_today(row, today)
  row.quota_day = today
  row.run_at = step.now
  line.set_deferred(row, false)
  if row.due_at then
    line.join(row)
  else
    line.tell_time('rescheduled', row)
  end
end

local function bring_to_day(row, day)
  local time = midnight(day) + row.run_at - midnight(row.quota_day)
  line.set_deferred(row, false)
  quota.defer(row, day, time)
  if row.due_at then
    line.wait_until_due(row)
  end
  line.tell_time('rescheduled', row)
end

function quota.move_forward(user, size)
  -- Move the user's deferred jobs forward into days that have room, the earliest job first.
  if not size or size == 0 then
    return
  end
  local today = quota.day_of(step.now)
  local day = today
  while true do
    day = quota.first_day_with_room(user, day, size)
    local number = call(
      'ZRANGEBYSCORE', written(key('deferred:', user)), midnight(day + 1), '+inf', 'LIMIT', 0, 1
    )[1]
    if not number then
      return
    end
    local row = rows.get(number)
    quota.charge(user, row.quota_day, -1)
    quota.charge(user, day, 1)
    if day == today then
      bring_to_today(row, today)
    else
      bring_to_day(row, day)
    end
  end
end

function quota.would_move(user, size, last_day)
  -- The effect that `move_forward` would have with this quota: by how much the use of `last_day` (today or tomorrow)
  -- would change, and how many deferred jobs would join the line.
  local change, joining = 0, 0
  if not size or size == 0 then
    return change, joining
  end
  local today = quota.day_of(step.now)
  local at_most = last_day == today and math.max(size - quota.used_on(user, today), 0) or -1
  local deferred = call(
    'ZRANGEBYSCORE', written(key('deferred:', user)), midnight(today + 1), '+inf', 'WITHSCORES', 'LIMIT', 0, at_most
  )
  local next_one = 1
  for day = today, last_day do
    local room = size - quota.used_on(user, day) - (day == last_day and change or 0)
    while room > 0 and deferred[next_one] do
      local from = quota.day_of(tonumber(deferred[next_one + 1]))
      if from > day then
        room = room - 1
        change = change + (day == last_day and 1 or 0) - (from == last_day and 1 or 0)
        joining = joining + (day == today and rows.get(deferred[next_one]).due_at and 1 or 0)
      end
      next_one = next_one + 2
    end
  end
  return change, joining
end

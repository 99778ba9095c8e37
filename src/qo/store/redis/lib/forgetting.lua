-- The part of upkeep that removes what is past its retention: jobs, events, audit entries, figures, quota, users, limits
-- and workers, in this order.
-- include lib/share.lua
-- include lib/users.lua
-- include lib/wake.lua
-- exports forgetting

local forgetting = {}
local LOOK_AT_MOST = 2000 -- jobs of unfinished parents that are passed over in one step
local BATCH = 256

-- --- jobs -----------------------------------------------------------------------------------------------------

local function horizon(keep_ms, keep_jobs)
  -- The last (time, number) that is past its retention, by age or by number.
  local at, number = step.now - keep_ms, '999999999999'
  local newest = call('ZREVRANGE', key('finished'), keep_jobs, keep_jobs, 'WITHSCORES')
  if newest[1] and tonumber(newest[2]) > at then
    at, number = tonumber(newest[2]), newest[1]
  end
  return at, number
end

local function finder(at, number)
  local whole_parents = {}
  local function is_past(ended_at, ended_number)
    return ended_at < at or (ended_at == at and ended_number <= number)
  end
  local function may_go(row)
    -- A parent's jobs go when all of them have ended and the last one is past its retention too.
    if not row.parent then
      return true
    end
    if whole_parents[row.parent] == nil then
      local last = call('ZREVRANGE', key('endings:', row.parent), 0, 0, 'WITHSCORES')
      local unfinished = tonumber(call('HGET', key('unfinished'), row.parent) or 0)
      whole_parents[row.parent] = unfinished == 0 and is_past(tonumber(last[2]), last[1])
    end
    return whole_parents[row.parent]
  end
  return is_past, may_go
end

local function jobs_to_forget(keep_ms, keep_jobs)
  -- Oldest first, one more than fits. Where too many belong to parents that are not through, the next step goes
  -- on behind them.
  local is_past, may_go = finder(horizon(keep_ms, keep_jobs))
  local found, offset = {}, step.counter('forget_from')
  local look_until = offset + LOOK_AT_MOST
  while #found <= share.left() do
    local some = call('ZRANGE', key('finished'), offset, offset + BATCH - 1, 'WITHSCORES')
    if #some == 0 then
      step.set_counter('forget_from', 0)
      return found
    end
    local numbers = {}
    for i = 1, #some, 2 do
      numbers[#numbers + 1] = some[i]
    end
    rows.load(numbers)
    for i = 1, #some, 2 do
      if not is_past(tonumber(some[i + 1]), some[i]) then
        step.set_counter('forget_from', 0)
        return found
      end
      local row = rows.get(some[i])
      if may_go(row) then
        found[#found + 1] = row
        look_until = look_until + 1
      end
      if #found > share.left() then
        return found
      end
    end
    offset = offset + BATCH
    if offset >= look_until then
      step.set_counter('forget_from', offset - #found)
      return found
    end
  end
  return found
end

local function forget_parent(parent)
  later('HDEL', key('parents'), parent)
  later('HDEL', key('unfinished'), parent)
  call('DEL', written(key('children:', parent)), written(key('endings:', parent)), written(key('phases:', parent)))
end

local function forget_phase(row)
  -- The phase may be a newer job by now. Or the one that this one replaced is still there, if the clock went back.
  if call('HGET', written(key('phases:', row.parent)), row.phase) ~= row.number then
    return
  end
  if row.replaces and call('HEXISTS', written(key('jobs')), row.replaces) == 1 then
    later('HSET', key('phases:', row.parent), row.phase, row.replaces)
  else
    later('HDEL', key('phases:', row.parent), row.phase)
  end
end

local function forget_job(row)
  rows.delete(row)
  for _, table_name in ipairs({ 'payloads', 'checkpoints', 'results' }) do
    later('HDEL', key(table_name), row.number)
  end
  later('ZREM', key('finished'), row.number)
  if row.user then
    later('ZREM', key('jobs_of:', row.user), row.number)
  end
  if row.parent then
    later('ZREM', key('endings:', row.parent), row.number)
    later('ZREM', key('children:', row.parent), row.number)
    if row.phase then
      forget_phase(row)
    end
    if call('ZCARD', written(key('children:', row.parent))) == 0 then
      forget_parent(row.parent)
    end
  end
end

local function oldest_kept()
  -- Numbers only grow, so what was passed once need not be looked at again.
  local oldest, last = step.counter('oldest_job'), step.counter('last_job')
  write_pending()
  while oldest <= last do
    local numbers = {}
    for number = oldest, math.min(oldest + BATCH - 1, last) do
      numbers[#numbers + 1] = string.format('%012d', number)
    end
    for i, text in ipairs(call('HMGET', key('jobs'), unpack(numbers))) do
      if text then
        step.set_counter('oldest_job', oldest + i - 1)
        return oldest + i - 1
      end
    end
    oldest = oldest + #numbers
  end
  step.set_counter('oldest_job', oldest)
  return oldest
end

-- --- what is kept beside jobs ---------------------------------------------------------------------------------

local function forget_events(keep_events)
  local oldest, newest = step.counter('oldest_event'), step.counter('newest_event')
  local too_many = newest - math.max(keep_events, 1) - oldest + 1
  local removed = share.take_some(too_many)
  if removed == 0 then
    return
  end
  oldest = oldest + removed
  step.set_counter('oldest_event', oldest)
  call('XTRIM', key('events'), 'MINID', digits(oldest) .. '-0')
end

local function forget_audit(keep_audit)
  -- Entries are numbered without a gap, and those of a subject are listed in their order.
  local kept = call('HLEN', key('audit'))
  local oldest, ids = step.counter('last_audit') - kept + 1, {}
  for id = oldest, oldest + share.take_some(kept - keep_audit) - 1 do
    ids[#ids + 1] = digits(id)
  end
  for i, text in ipairs(fields_of(key('audit'), ids)) do
    call('LPOP', key('audit:', cmsgpack.unpack(text)[4]))
    later('HDEL', key('audit'), ids[i])
  end
end

local function sum_up_figures(before)
  -- By minute and name; a figure is two fields of its minute.
  for _, minute in ipairs(call('ZRANGEBYSCORE', key('minutes'), 1, below(before))) do
    local stored = call('HGETALL', key('figures:', minute))
    local names, values = {}, {}
    for i = 1, #stored, 2 do
      values[stored[i]] = stored[i + 1]
      if stored[i]:sub(1, 2) == 'n:' then
        names[#names + 1] = stored[i]:sub(3)
      end
    end
    table.sort(names, comes_before)
    for _, name in ipairs(names) do
      if share.take_some(1) == 0 then
        return
      end
      local group = figure_names.own_group(name)
      if name ~= DEPTH and (not group or groups.get(group).limit) then
        call('HINCRBY', key('figures:', 0), 'n:' .. name, values['n:' .. name])
        call('HINCRBY', key('figures:', 0), 't:' .. name, values['t:' .. name] or 0)
        call('ZADD', key('minutes'), 0, 0)
      end
      call('HDEL', key('figures:', minute), 'n:' .. name, 't:' .. name)
    end
    call('ZREM', key('minutes'), minute)
  end
end

local function forget_quota()
  local today = quota.day_of(step.now)
  local found = call('ZRANGEBYSCORE', key('quota_days'), '-inf', below(today), 'LIMIT', 0, share.left() + 1)
  for _, member in ipairs(share.take(found)) do
    users.note_idle(quota.forget_day(member))
  end
end

local function forget_users(oldest)
  local found = call(
    'ZRANGEBYSCORE', written(key('idle_users')), '-inf', below(oldest), 'LIMIT', 0, share.left() + 1
  )
  for _, name in ipairs(share.take(found)) do
    users.delete(name)
  end
end

local function forget_sums_of(name)
  for _, figure in ipairs(figure_names.of(name)) do
    call('HDEL', key('figures:', 0), 'n:' .. figure, 't:' .. figure)
  end
  if call('EXISTS', key('figures:', 0)) == 0 then
    call('ZREM', key('minutes'), 0)
  end
end

local function is_used(name)
  return call('EXISTS', written(key('held:', name)), written(key('parks:', name))) > 0
end

local function forget_limits(oldest)
  -- Those in use are few: jobs that hold or wait keep the number of their group's newest job young.
  local found, offset = {}, 0
  while #found <= share.left() do
    local some = call('ZRANGEBYSCORE', key('limit_ages'), '-inf', below(oldest), 'LIMIT', offset, share.left() + 1)
    if #some == 0 then
      break
    end
    for _, name in ipairs(some) do
      if #found <= share.left() and not is_used(name) then
        found[#found + 1] = name
      end
    end
    offset = offset + #some
  end
  for _, name in ipairs(share.take(found)) do
    local group = groups.get(name)
    group.limit, group.source = nil, nil
    groups.store(group)
    forget_sums_of(name)
  end
end

local function forget_workers(expired_until)
  local stored, gone, tasks_of = call('HGETALL', key('workers')), {}, {}
  for i = 1, #stored, 2 do
    local name, worker = stored[i], cmsgpack.unpack(stored[i + 1])
    if worker.expires_at <= expired_until then
      gone[#gone + 1] = name
      tasks_of[name] = worker.tasks
    end
  end
  table.sort(gone, comes_before)
  for _, name in ipairs(share.take(gone)) do
    later('HDEL', key('workers'), name)
    wake.forget_wholly(name, tasks_of[name])
  end
end

function forgetting.run(keep)
  -- The ids of the jobs that were removed.
  local ids = {}
  -- A job that has failed in this step may go at once, and so may the limit of a group that a lane has left.
  lanes.settle()
  write_pending()
  for i, row in ipairs(share.take(jobs_to_forget(keep.ms, keep.jobs))) do
    ids[i] = row.id
    forget_job(row)
  end
  forget_events(keep.events)
  forget_audit(keep.audit)
  sum_up_figures(math.floor((step.now - keep.ms) / MINUTE_MS))
  local oldest = oldest_kept()
  forget_quota()
  forget_users(oldest)
  forget_limits(oldest)
  forget_workers(step.now - keep.ms)
  return ids
end

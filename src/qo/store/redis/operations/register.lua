-- register: a worker has started, or is gone.
--
-- Arguments  name, instance, replaces, tasks (none: gone), capacity, limits, lifetime_ms, lease_ms, turn_after, host, pid
-- Answers    a live worker that has the name already, and then nothing is written; else the configuration's limits that
--            changed, and limits that a stronger source keeps out; the time
-- Events     limit, where changed. Audit "limit" for the configuration's, where changed
-- flags allow-oom
-- include lib/limits.lua
-- include lib/workers.lua
-- include lib/wake.lua

local function look_at_parked(source, group)
  local jobs = rows.of(call('ZRANGE', written(key('parked:', source, group)), 0, -1))
  line.look_up_lanes(jobs)
  for _, row in ipairs(jobs) do
    line.look_at_lane(row)
  end
end

local function replace_options(task)
  local kept, gone = {}, {}
  for _, name in ipairs(task.groups or NONE) do
    kept[name] = true
  end
  for _, name in ipairs(tasks.get(task.name).groups or NONE) do
    if not kept[name] then
      gone[#gone + 1] = name
    end
  end
  local has_options = #(task.groups or NONE) > 0 or task.max_attempts
  tasks.set(task.name, has_options and { groups = task.groups, max_attempts = task.max_attempts } or nil)
  for _, source in ipairs(tasks.sources(task.name)) do
    for _, group in ipairs(gone) do
      look_at_parked(source, group)
    end
  end
end

local known = workers.find(arguments.name)
local is_own = known and known.instance == arguments.instance
turns.touch() -- tasks may get a worker or lose one, or have other groups

if not arguments.tasks then
  if is_own or not known then
    call('HDEL', key('workers'), arguments.name)
    wake.forget_wholly(arguments.name, known and known.tasks or NONE)
  end
  hand_over()
  return step.answer({ now = step.now })
end

if known and not is_own then
  if known.expires_at > step.now and known.instance ~= arguments.replaces then
    return step.answer({ namesake = workers.count_running(known), now = step.now })
  end
  -- It may have offered to take a job. Claimed for that offer, the job would wait until its lease is over.
  wake.forget_wholly(arguments.name, known.tasks)
end

local names = {}
for i, task in ipairs(arguments.tasks) do
  names[i] = task.name
end
workers.save({
  name = arguments.name, instance = arguments.instance, tasks = names, capacity = arguments.capacity,
  lifetime_ms = arguments.lifetime_ms, host = arguments.host, pid = arguments.pid, registered_at = step.now,
  heard_at = step.now, expires_at = step.now + arguments.lifetime_ms,
})
local changed, ignored = {}, {}
limits.apply(arguments.limits, arguments.name, ignored, changed)
for _, task in ipairs(arguments.tasks) do
  replace_options(task)
  limits.grant(task.name, task.limit, TASK, ignored)
end
if arguments.lease_ms ~= step.counter('lease_ms') then
  step.set_counter('lease_ms', arguments.lease_ms)
end
if arguments.turn_after ~= step.counter('turn_after') then
  step.set_counter('turn_after', arguments.turn_after)
end
hand_over()
return step.answer({ changed = changed, ignored = ignored, now = step.now })

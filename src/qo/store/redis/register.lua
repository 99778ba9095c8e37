-- register: a worker has started, or is gone.
--
-- Arguments  name, tasks (none: gone), places, lifetime_ms, lease_ms, host, pid
-- Answers    limits that a stronger source keeps out; the time
-- Events     limit, where changed
-- flags allow-oom
-- include lib/limits.lua
-- include lib/wake.lua

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
  for _, group in ipairs(gone) do
    local numbers = call('ZRANGE', written(key('parked:', task.name, group)), 0, -1)
    rows.load(numbers)
    for _, number in ipairs(numbers) do
      local row = rows.get(number)
      line.enter_again(row, row.key)
    end
  end
end

local ignored = {}
if arguments.tasks then
  local names = {}
  for i, task in ipairs(arguments.tasks) do
    names[i] = task.name
  end
  call('HSET', key('workers'), arguments.name, cmsgpack.pack({
    tasks = names, places = arguments.places, lifetime_ms = arguments.lifetime_ms, host = arguments.host,
    pid = arguments.pid, registered_at = step.now, expires_at = step.now + arguments.lifetime_ms,
  }))
  for _, task in ipairs(arguments.tasks) do
    replace_options(task)
    limits.grant(task.name, task.limit, TASK, ignored)
  end
  if arguments.lease_ms ~= step.counter('lease_ms') then
    step.set_counter('lease_ms', arguments.lease_ms)
  end
else
  local known = call('HGET', key('workers'), arguments.name)
  call('HDEL', key('workers'), arguments.name)
  wake.forget_wholly(arguments.name, known and cmsgpack.unpack(known).tasks or NONE)
end
hand_over()
return step.answer({ ignored = ignored, now = step.now })

-- Waking idle workers: as many as jobs became claimable in this step, each on its own channel, never all.
-- A worker that finds nothing to claim puts itself down as idle for its tasks until it looks again (wait_for_work).
-- include lib/groups.lua
-- exports wake

local wake = {}

function wake.forget(worker)
  local text = call('HGET', key('idle_workers'), worker)
  if text then
    for _, task in ipairs(cmsgpack.unpack(text)) do
      call('ZREM', key('idle:', task), worker)
    end
    call('HDEL', key('idle_workers'), worker)
  end
end

local function wake_for(task, count)
  while count > 0 do
    local found = call('ZRANGE', key('idle:', task), 0, 0, 'WITHSCORES')
    if not found[1] then
      return
    end
    wake.forget(found[1])
    if tonumber(found[2]) > step.now then
      call('PUBLISH', key('wake:', found[1]), task)
      count = count - 1
    end
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

local function wake_workers()
  count_behind_gates()
  for task, count in pairs(groups.made_claimable()) do
    if count > 0 and task ~= CALLERS and call('EXISTS', key('idle:', task)) == 1 and groups.gates_open(task) then
      wake_for(task, count)
    end
  end
end

at_the_end[#at_the_end + 1] = wake_workers

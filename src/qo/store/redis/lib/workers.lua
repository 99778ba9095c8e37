-- Registered workers, and the live ones among them, by name.
-- include lib/rows.lua
-- exports workers

local workers = {}
local served -- by task: whether a live worker handles it; nil until it is asked for

at_the_beginning[#at_the_beginning + 1] = function()
  served = nil
end

local function unpacked(name, text)
  local worker = cmsgpack.unpack(text)
  worker.name = name
  return worker
end

function workers.find(name)
  -- A registered worker, live or not.
  local text = call('HGET', written(key('workers')), name)
  return text and unpacked(name, text)
end

function workers.save(worker)
  local stored = {}
  for field, value in pairs(worker) do
    stored[field] = field ~= 'name' and field ~= 'running' and value or nil
  end
  call('HSET', key('workers'), worker.name, cmsgpack.pack(stored))
end

function workers.count_running(worker)
  worker.running = call('SCARD', written(key('running:', worker.name)))
  return worker
end

function workers.all()
  local all = {}
  local stored = call('HGETALL', written(key('workers')))
  for i = 1, #stored, 2 do
    all[#all + 1] = unpacked(stored[i], stored[i + 1])
  end
  table.sort(all, function(a, b)
    return comes_before(a.name, b.name)
  end)
  return all
end

function workers.live()
  local live = {}
  for _, worker in ipairs(workers.all()) do
    if worker.expires_at > step.now then
      live[#live + 1] = workers.count_running(worker)
    end
  end
  return live
end

function workers.serve(task)
  -- Whether a live worker handles the task. Asked for after this step has changed what it changes of workers.
  if not served then
    served = {}
    for _, worker in ipairs(workers.all()) do
      for _, name in ipairs(worker.expires_at > step.now and worker.tasks or NONE) do
        served[name] = true
      end
    end
  end
  return served[task]
end

function workers.takes(worker, task)
  for _, name in ipairs(worker.tasks) do
    if name == task then
      return true
    end
  end
  return false
end

-- Workers that live, by name.
-- include lib/step.lua
-- exports workers

local workers = {}

function workers.live()
  local live = {}
  local stored = call('HGETALL', written(key('workers')))
  for i = 1, #stored, 2 do
    local worker = cmsgpack.unpack(stored[i + 1])
    if worker.expires_at > step.now then
      worker.name = stored[i]
      worker.running = call('SCARD', written(key('running:', worker.name)))
      live[#live + 1] = worker
    end
  end
  table.sort(live, function(a, b)
    return comes_before(a.name, b.name)
  end)
  return live
end

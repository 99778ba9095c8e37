-- Users: the numbers of their tier, applied at once to all their waiting jobs.
-- include lib/quota.lua
-- exports users

local users = {}
local known_users

at_the_beginning[#at_the_beginning + 1] = function()
  known_users = {}
end

function users.get(name)
  if known_users[name] == nil then
    local text = call('HGET', written(key('users')), name)
    known_users[name] = text and cmsgpack.unpack(text) or false
  end
  return known_users[name] or nil
end

function users.standing(name)
  local user = users.get(name)
  return user and user.standing
end

function users.save(name, user)
  known_users[name] = user
  later('HSET', key('users'), name, cmsgpack.pack(user))
  users.note_idle(name)
end

function users.note_idle(name)
  -- The users that are kept only because of their newest job, not by a person's decision or a quota.
  local user = users.get(name)
  if user and not user.pinned and quota.has_none(name) then
    later('ZADD', key('idle_users'), user.last_job, name)
  else
    later('ZREM', key('idle_users'), name)
  end
end

function users.delete(name)
  known_users[name] = false
  later('HDEL', key('users'), name)
  later('ZREM', key('idle_users'), name)
end

function users.same(a, b)
  for _, field in ipairs(STANDING_FIELDS) do
    if a[field] ~= b[field] then
      return false
    end
  end
  return true
end

function users.limit_by_standing(standing, user, projects, ignored)
  -- The limits that a standing gives to a user and to projects; limits that it no longer gives are removed.
  if user then
    limits.grant('user:' .. user, standing.user_limit, TIER, ignored)
  end
  for _, project in ipairs(projects) do
    limits.grant('project:' .. project, standing.project_limit, TIER, ignored)
  end
end

local function waiting_jobs(user)
  local found = {}
  for _, row in ipairs(rows.unfinished(key('jobs_of:', user))) do
    if WAITS[row.state] then
      found[#found + 1] = row
    end
  end
  table.sort(found, function(a, b)
    local one, other = a.key or -1, b.key or -1
    if one ~= other then
      return one < other
    end
    return a.number < b.number
  end)
  return found
end

function users.apply_standing(name, standing, pinned, project, ignored)
  local user = users.get(name)
  users.save(name, {
    standing = standing, pinned = pinned or nil, last_job = math.max(user and user.last_job or 0, step.counter('last_job')),
  })
  local waiting = waiting_jobs(name)
  local projects, known = {}, {}
  local function add(other)
    if other and not known[other] then
      known[other] = true
      projects[#projects + 1] = other
    end
  end
  add(project)
  line.look_up_lanes(waiting)
  for _, row in ipairs(waiting) do
    row.tier = standing.tier
    row.boost = standing.boost ~= 0 and standing.boost or nil
    row.iterations_batch = standing.iterations_batch
    row.iterations_max = standing.iterations_max
    rows.save(row)
    add(row.project)
  end
  table.sort(projects, comes_before)
  users.limit_by_standing(standing, name, projects, ignored)
  for _, row in ipairs(waiting) do
    if row.key then
      line.enter_again(row, row.key)
    end
  end
  quota.move_forward(name, standing.daily_quota)
end

-- The one limit a group has, and where it comes from.
-- include lib/hand_over.lua
-- exports limits

local limits = {}
local OPERATOR = 1

local function apply(wanted, by)
  -- What keeps it out, if something of another value does.
  local group = groups.get(wanted.group)
  if group.limit then
    if wanted.source > group.source or wanted.source == SUBMIT then
      if wanted.slots == group.limit then
        return nil
      end
      return { wanted = wanted, in_force = { group = group.name, slots = group.limit, source = group.source } }
    end
    if group.limit == wanted.slots and group.source == wanted.source then
      return nil
    end
  end
  local had_none = not group.limit
  group.limit, group.source = wanted.slots, wanted.source
  group.last_job = math.max(group.last_job, step.counter('last_job'))
  if had_none then
    group.active = call('ZCARD', written(key('held:', group.name)))
    lease.adopt(group.name)
  end
  groups.store(group)
  local detail = { limit = group.limit, source = group.source }
  step.event('limit', group.name, detail)
  if wanted.source == OPERATOR then
    step.audit(by, 'limit', group.name, detail)
  end
end

function limits.apply(wanted, by, ignored)
  for _, limit in ipairs(wanted or NONE) do
    local kept_out = apply(limit, by)
    if kept_out then
      ignored[#ignored + 1] = kept_out
    end
  end
end

function limits.drop(name, only)
  -- Remove a limit, if it is of this source where one is named; the source, where something was removed.
  local group = groups.get(name)
  local source = group.source
  if not group.limit or (only and source ~= only) then
    return nil
  end
  group.limit, group.source = nil, nil
  groups.store(group)
  step.event('limit', name, { limit = cjson.null, source = source })
  return source
end

function limits.grant(name, slots, source, ignored)
  -- What a source gives now; none takes back what it gave before.
  if slots then
    limits.apply({ { group = name, slots = slots, source = source } }, nil, ignored)
  else
    limits.drop(name, source)
  end
end

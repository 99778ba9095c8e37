-- A group's one limit and its source.
-- include lib/lease.lua
-- exports limits

local limits = {}

local function limit_of(group)
  return group.limit and { group = group.name, slots = group.limit, source = group.source } or nil
end

local function audit(by, name, limit, source, before)
  -- With what an undo goes back to.
  step.audit(by, 'limit', name, {
    limit = limit or cjson.null, source = source, from = before and before.slots or cjson.null,
    from_source = before and before.source or cjson.null,
  })
end

local function apply(wanted, by)
  -- Returns the stronger limit of another value that stays, if there is one; else the change, if there was one.
  local group = groups.get(wanted.group)
  local before = limit_of(group)
  if before then
    if wanted.source > before.source or wanted.source == SUBMIT then
      return wanted.slots ~= before.slots and { wanted = wanted, in_force = before } or nil
    end
    if before.slots == wanted.slots and before.source == wanted.source then
      return nil
    end
  end
  group.limit, group.source = wanted.slots, wanted.source
  group.last_job = math.max(group.last_job, step.counter('last_job'))
  if not before then
    group.active = call('ZCARD', written(key('held:', group.name)))
    lease.adopt(group.name)
  end
  groups.store(group)
  step.event('limit', group.name, { limit = group.limit, source = group.source })
  if wanted.source == OPERATOR or wanted.source == CONFIGURATION then
    audit(by, group.name, group.limit, group.source, before)
  end
  return nil, { limit = wanted, before = before }
end

function limits.apply(wanted, by, ignored, changed)
  -- Adds limits without effect to `ignored`, and changes to `changed` if that is given.
  for _, limit in ipairs(wanted or NONE) do
    local kept_out, change
    if limit.slots then
      kept_out, change = apply(limit, by)
    else
      limits.remove(limit.group, limit.only, by)
    end
    if kept_out then
      ignored[#ignored + 1] = kept_out
    elseif change and changed then
      changed[#changed + 1] = change
    end
  end
end

function limits.drop(name, only)
  -- Remove a limit, if it has the source `only` (nil: any), and return it.
  local group = groups.get(name)
  local removed = limit_of(group)
  if not removed or (only and removed.source ~= only) then
    return nil
  end
  group.limit, group.source = nil, nil
  groups.store(group)
  step.event('limit', name, { limit = cjson.null, source = removed.source })
  return removed
end

function limits.remove(name, only, by)
  -- Remove a limit, with an event and an entry in the audit trail.
  local removed = limits.drop(name, only)
  if removed then
    audit(by, name, nil, removed.source, removed)
  end
end

function limits.remove_others(wanted, source, by)
  -- Remove the limits of this source that are not wanted, in the order of their names.
  local kept, names = {}, call('HKEYS', written(key('groups')))
  for _, limit in ipairs(wanted) do
    kept[limit.group] = true
  end
  table.sort(names, comes_before)
  groups.load(names)
  for _, name in ipairs(names) do
    if not kept[name] then
      limits.remove(name, source, by)
    end
  end
end

function limits.grant(name, slots, source, ignored)
  -- Set the limit that a source gives now; nil removes the one that it gave before.
  if slots then
    limits.apply({ { group = name, slots = slots, source = source } }, nil, ignored)
  else
    limits.drop(name, source)
  end
end

-- How figures of groups are named, as in `policy/figures.py`: a group whose kind is reserved is summed under it, any
-- other has its own.
-- include lib/server.lua
-- exports figure_names, kind_of

local figure_names = {}
local KINDS = { user = true, project = true, tier = true, priority = true, parent = true, provider = true }
local HIGHEST_WAIT_BUCKET_SECONDS = 65536

local function kind_of(group)
  local kind = group:match('^([^:]*):')
  return kind and KINDS[kind] and kind or group
end

local function wait_bucket(waited_ms)
  if waited_ms <= 0 then
    return 0
  end
  local seconds, bucket = math.ceil(waited_ms / 1000), 1
  while bucket < seconds and bucket < HIGHEST_WAIT_BUCKET_SECONDS do
    bucket = bucket * 2
  end
  return bucket
end

function figure_names.rejected(group)
  return 'rejected:' .. kind_of(group)
end

function figure_names.acquired(group, waited_ms)
  return 'acquired:' .. kind_of(group) .. ':' .. wait_bucket(waited_ms)
end

function figure_names.of(group)
  -- The names of all that are this group's alone.
  if kind_of(group) ~= group or KINDS[group] then
    return {}
  end
  local names, bucket = { figure_names.rejected(group), 'acquired:' .. group .. ':0' }, 1
  while bucket <= HIGHEST_WAIT_BUCKET_SECONDS do
    names[#names + 1] = 'acquired:' .. group .. ':' .. bucket
    bucket = bucket * 2
  end
  return names
end

function figure_names.own_group(figure)
  -- The group whose alone it is; nothing for all others.
  local group = figure:match('^rejected:(.*)$') or figure:match('^acquired:(.*):%d+$')
  return not KINDS[group] and group or nil
end

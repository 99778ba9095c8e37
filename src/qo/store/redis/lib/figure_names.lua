-- The names of groups' figures, as in `policy/figures.py`: groups with a reserved prefix are summed under that prefix,
-- any other group has its own.
-- include lib/server.lua
-- exports figure_names, kind_of

local figure_names = {}

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
  -- The names of all figures that belong to this group alone.
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
  -- The group that this figure belongs to alone; nil for a sum.
  local group = figure:match('^rejected:(.*)$') or figure:match('^acquired:(.*):%d+$')
  return not KINDS[group] and group or nil
end

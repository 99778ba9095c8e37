-- move: put a job in line directly before or after another one.
--
-- Arguments  job_id, before or after, by, undoes
-- Answers    the job as it is now; refused: no_job, wrong_state, no_place, changed_since
-- Events     moved. Audit "move"
--
-- Where no place is left between the neighbours, the nearest ones are spread out in the same step.
-- flags allow-oom
-- include lib/people.lua
-- include lib/places.lua
-- include lib/undoing.lua

local function neighbours(row, other_key, wanted)
  -- So many jobs before and after the gap within the neighbour's priority, nearest first, without the moved one.
  local band = line.priority_of(other_key)
  local low, high = line.order_key(band, 0), below(line.order_key(band + 1, 0))
  local includes_other_ahead = arguments.after ~= nil
  local last_ahead = includes_other_ahead and other_key or below(other_key)
  local first_behind = includes_other_ahead and below(other_key) or other_key
  local ahead = call('ZREVRANGEBYSCORE', key('line'), last_ahead, low, 'LIMIT', 0, wanted + 1)
  local behind = call('ZRANGEBYSCORE', key('line'), first_behind, high, 'LIMIT', 0, wanted + 1)
  local function without_the_moved(numbers)
    rows.load(numbers)
    local found = {}
    for _, number in ipairs(numbers) do
      if number ~= row.number and #found < wanted then
        found[#found + 1] = rows.get(number)
      end
    end
    return found
  end
  return without_the_moved(ahead), without_the_moved(behind)
end

local function places_of(standing)
  local places = {}
  for i, row in ipairs(standing) do
    places[i] = line.place_of(row.key)
  end
  return places
end

local function owner_of(place)
  return call('HGET', key('moved'), digits(place)) or nil
end

local function place_between(row, other_key)
  -- A place beside the neighbour it was moved to, if there is one left.
  local ahead, behind = neighbours(row, other_key, 1)
  local low, high = places_of(ahead)[1] or -1, places_of(behind)[1] or step.counter('next_sequence') * CELL
  return places.between(low, high, arguments.before ~= nil, function(candidate)
    local owner = owner_of(candidate)
    return owner and owner ~= row.number
  end)
end

local function spread_out(row, other_key)
  -- A place for the moved one, and the moves of its nearest neighbours that make room for it.
  local ahead, behind = neighbours(row, other_key, SPREAD_AT_MOST / 2 + 1)
  local ours = { [row.number] = true }
  for _, standing in ipairs({ ahead, behind }) do
    for _, neighbour in ipairs(standing) do
      ours[neighbour.number] = true
    end
  end
  local place, places_ahead, places_behind = places.spread(
    places_of(ahead), places_of(behind), step.counter('next_sequence') * CELL,
    function(candidate)
      local owner = owner_of(candidate)
      return owner and not ours[owner]
    end
  )
  local moves = {}
  for i = #(places_ahead or NONE), 1, -1 do
    moves[#moves + 1] = { ahead[i], places_ahead[i] }
  end
  for i = 1, #(places_behind or NONE) do
    moves[#moves + 1] = { behind[i], places_behind[i] }
  end
  return place, moves
end

local function take_place(row, order_key)
  later('HSET', key('moved'), digits(line.place_of(order_key)), row.number)
end

local function vacate(row)
  -- Places may change hands in this step, so all are given up before any is taken again.
  if line.was_moved(line.place_of(row.key)) then
    later('HDEL', key('moved'), digits(line.place_of(row.key)))
  end
end

local row, other = rows.find(arguments.job_id), rows.find(arguments.before or arguments.after)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
elseif not other then
  return step.refuse('no_job', { id = arguments.before or arguments.after })
end
for _, standing in ipairs({ row, other }) do
  if standing.state ~= 'queued' then
    return people.wrong_state(standing)
  end
end
if arguments.undoes then
  local detail = undoing.of_job(row, arguments.undoes)
  if not detail or not detail.key or detail.from.priority ~= other.priority then
    return undoing.refuse(row.id, arguments.undoes)
  end
end
local function id_at(rank)
  local number = rank >= 0 and call('ZRANGE', written(key('line')), rank, rank)[1]
  return number and rows.get(number).id or cjson.null
end

local rank = call('ZRANK', written(key('line')), row.number)
-- The job's priority, and the jobs that it stands directly before and after, for an undo.
local former = { priority = row.priority, before = id_at(rank + 1), after = id_at(rank - 1) }
local band = line.priority_of(other.key)
local place, moves = place_between(row, other.key), {}
if not place then
  place, moves = spread_out(row, other.key)
end
if not place then
  return step.refuse('no_place', { at_most = SPREAD_AT_MOST })
end
vacate(row)
local standing = { row }
for _, each in ipairs(moves) do
  vacate(each[1])
  standing[#standing + 1] = each[1]
end
line.look_up_lanes(standing)
for _, each in ipairs(moves) do
  local neighbour, order_key = each[1], line.order_key(line.priority_of(each[1].key), each[2])
  line.note_disturbance(neighbour)
  line.make_room(neighbour, order_key)
  take_place(neighbour, order_key)
end
row.priority = other.priority
turns.begin_anew(row)
line.note_displacement(row, 'moved', line.order_key(band, place))
line.enter_again(row, line.order_key(band, place))
take_place(row, row.key)
step.event('moved', row.id, { before = arguments.before, after = arguments.after })
step.audit(arguments.by, 'move', row.id, {
  before = arguments.before, after = arguments.after, from = former, key = digits(row.key),
})
hand_over()
return people.answer({ row })

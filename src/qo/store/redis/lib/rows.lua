-- Jobs, each a packed table under its number. Read once in a step, changed in memory, written at its end.
--
-- Empty fields are not in the table: `nil` is None, 0 or false, as in `store/redis/rows.py`.
-- include lib/step.lua
-- exports rows, tasks, NONE

local rows = {}
local loaded, changed, packed, known_tasks
local payloads -- of the jobs that are new in this step
local known_names -- by lane: the groups of its jobs, one list for all of them

at_the_beginning[#at_the_beginning + 1] = function()
  loaded, changed, packed, known_tasks, payloads, known_names = {}, {}, {}, {}, {}, {}
end

function rows.load(numbers)
  -- Read all jobs that are not known yet, in one command.
  local missing = {}
  for _, number in ipairs(numbers) do
    if number and not loaded[number] then
      missing[#missing + 1] = number
    end
  end
  for i, text in ipairs(fields_of(key('jobs'), missing)) do
    if text then
      loaded[missing[i]], packed[missing[i]] = cmsgpack.unpack(text), text
    end
  end
end

function rows.get(number)
  if not loaded[number] then
    rows.load({ number })
  end
  return loaded[number]
end

function rows.is_read(number)
  return loaded[number] ~= nil
end

function rows.numbers(ids)
  -- The numbers of these ids, read in one command; false where there is no such job.
  return #ids > 0 and fields_of(written(key('ids')), ids) or {}
end

function rows.find(id)
  local number = call('HGET', written(key('ids')), id)
  return number and rows.get(number) or nil
end

function rows.named_by(items)
  -- The job that each of these names by `job_id`, all read together; false where there is none.
  local ids, found = {}, {}
  for i, item in ipairs(items) do
    ids[i] = item.job_id
  end
  local numbers = rows.numbers(ids)
  rows.load(numbers)
  for i, number in ipairs(numbers) do
    found[i] = number and rows.get(number)
  end
  return found
end

function rows.of(numbers)
  -- The jobs of these numbers, read together.
  rows.load(numbers)
  local found = {}
  for i, number in ipairs(numbers) do
    found[i] = rows.get(number)
  end
  return found
end

function rows.due(index, at, at_most)
  -- The first jobs that stand in this index up to then.
  return rows.of(call('ZRANGEBYSCORE', written(key(index)), '-inf', at, 'LIMIT', 0, at_most))
end

function rows.unfinished(index)
  -- The unfinished jobs of this index, by number. The server leaves out the ended ones, as there may be many.
  return rows.of(call('ZDIFF', 2, written(index), written(key('finished'))))
end

function rows.insert(row, payload)
  row.payload_bytes = #payload
  payloads[row.number] = payload
  later('HSET', key('payloads'), row.number, payload)
  loaded[row.number] = row
  changed[row.number] = row
  later('HSET', key('ids'), row.id, row.number)
end

function rows.is_new(row)
  -- Whether the job was made in this step.
  return payloads[row.number] ~= nil
end

function rows.contents(numbers)
  -- Payloads and checkpoints of these jobs, one command for each; false where there is none.
  if #numbers == 0 then
    return {}, {}
  elseif #numbers == 1 and payloads[numbers[1]] then
    return { payloads[numbers[1]] }, { false }
  end
  return fields_of(written(key('payloads')), numbers), fields_of(key('checkpoints'), numbers)
end

function rows.save_checkpoint(row, checkpoint)
  row.checkpoint_bytes = #checkpoint
  rows.save(row)
  later('HSET', key('checkpoints'), row.number, checkpoint)
end

function rows.size(row)
  -- How many bytes a lease on this job returns. The row has the sizes, so that data which is not returned is not read.
  return (row.payload_bytes or 0) + (row.checkpoint_bytes or 0)
end

function rows.save(row)
  changed[row.number], packed[row.number] = row, nil
end

local SHORTEST_LINE = 14

function rows.with_line(lines, line, keep)
  -- The lines and one more; the oldest is dropped when there would be more than `keep`.
  if not lines then
    return line
  end
  if #lines >= keep * SHORTEST_LINE and select(2, lines:gsub('\n', '')) + 1 >= keep then
    lines = lines:match('^[^\n]*\n(.*)$')
  end
  return lines .. '\n' .. line
end

function rows.note_status(row, status)
  row.states = rows.with_line(row.states, digits(step.now) .. ' ' .. status, KEPT_STATES)
end

function rows.reach(row, state)
  step.count_state(row.state, -1)
  step.count_state(state, 1)
  row.state = state
  rows.note_status(row, state)
end

function rows.delete(row)
  step.count_state(row.state, -1)
  loaded[row.number] = nil
  changed[row.number] = nil
  later('HDEL', key('jobs'), row.number)
  later('HDEL', key('ids'), row.id)
end

function rows.packed(row)
  -- Save a row as it is now. A function that changes it afterwards has to save it again.
  local text = packed[row.number]
  if not text then
    text = cmsgpack.pack(row)
    packed[row.number] = text
  end
  return text
end

outbox.pack_row = rows.packed

at_the_end[#at_the_end + 1] = function()
  for number, row in pairs(changed) do
    later('HSET', key('jobs'), number, rows.packed(row))
  end
end

-- --- the options of tasks ---------------------------------------------------------------------------------------

local NONE = {}
local tasks = {}

function tasks.get(name)
  local task = known_tasks[name]
  if not task then
    local text = call('HGET', written(key('tasks')), name)
    task = text and cmsgpack.unpack(text) or NONE
    known_tasks[name] = task
  end
  return task
end

function tasks.set(name, task)
  known_tasks[name], known_names = task or NONE, {}
  if task then
    call('HSET', key('tasks'), name, cmsgpack.pack(task))
  else
    call('HDEL', key('tasks'), name)
  end
end

function rows.record(what, row, by)
  -- Add what happened to a job to the outbox, if there is one.
  if outbox.is_on() then
    outbox.add_job(what, row, by, tasks.get(row.task).groups, payloads[row.number])
  end
end

function tasks.max_attempts(name)
  return tasks.get(name).max_attempts or DEFAULT_MAX_ATTEMPTS
end

local function add_named(names, more, is_known)
  -- Add the groups that are not in the list yet.
  for _, name in ipairs(more) do
    if not is_known[name] then
      is_known[name] = true
      names[#names + 1] = name
    end
  end
end

local function names_of(row)
  local names = { 'global', row.task, 'priority:' .. row.priority }
  if row.user then
    names[#names + 1] = 'user:' .. row.user
  end
  if row.project then
    names[#names + 1] = 'project:' .. row.project
  end
  if row.tier then
    names[#names + 1] = 'tier:' .. row.tier
  end
  if row.parent then
    names[#names + 1] = 'parent:' .. row.parent
  end
  local of_task, own = tasks.get(row.task).groups, row.own_groups
  if of_task or own then
    -- A group that a task or a submit names has no reserved prefix, but may be the task's own group.
    local is_known = { [row.task] = true }
    add_named(names, of_task or NONE, is_known)
    add_named(names, own or NONE, is_known)
  end
  return names
end

local priority_texts = {} -- to write a number takes longer than all else that a lane's name needs

function tasks.lane_of(row)
  -- The name of the job's lane: all that decides its groups. No name is empty or has a NUL, and only the last part is
  -- a list, so two lanes never have the same name.
  local own, priority = row.own_groups, priority_texts[row.priority]
  if not priority then
    priority = digits(row.priority)
    priority_texts[row.priority] = priority
  end
  local lane = row.task .. '\0' .. priority .. '\0' .. (row.user or '') .. '\0' .. (row.project or '') .. '\0'
    .. (row.tier or '') .. '\0' .. (row.parent or '') .. '\0' .. (own and table.concat(own, '\0') or '')
  return row.suspicion and '\1' .. row.suspicion .. lane or lane
end

function tasks.source(task, suspicion)
  -- To the indexes, the suspects of a task are a task of their own. No name has a control character.
  return task .. '\1' .. suspicion
end

function tasks.source_of(row)
  return row.suspicion and tasks.source(row.task, row.suspicion) or row.task
end

function tasks.of_source(source)
  -- The task, and the suspicion of its jobs if they are suspects.
  local task, suspicion = source:match('^(.-)\1(%d)$')
  return task or source, tonumber(suspicion)
end

function tasks.sources(task)
  -- All that the jobs of a task can be to the indexes.
  if step.counter('suspects') == 0 then
    return { task }
  end
  return { task, tasks.source(task, SUSPECT), tasks.source(task, LAST_SUSPECT) }
end

function tasks.groups_of(row, lane)
  -- Every group of a job, each once, in the order in which a claim looks at them: first the two gates, then its
  -- priority. The list is shared with other jobs and must not be changed. `lane` is the name of its lane, if known.
  lane = lane or tasks.lane_of(row)
  local names = known_names[lane]
  if not names then
    names = names_of(row)
    known_names[lane] = names
  end
  return names
end

-- note_promises: note what users were told about jobs in line.
--
-- Arguments  ids, spans: of each, how many milliseconds from now at the earliest and at the latest
-- include lib/rows.lua

local numbers = rows.numbers(arguments.ids)
rows.load(numbers)
for i, number in ipairs(numbers) do
  local row = number and rows.get(number)
  if row and row.state == 'queued' and not row.started_at and not row.promise then
    row.promise = digits(step.now) .. ' ' .. arguments.spans[i]
    rows.save(row)
  end
end
return step.answer({})

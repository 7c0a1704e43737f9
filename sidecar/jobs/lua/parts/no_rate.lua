-- A target without a rate, with the functions of jobs/parts/rate.
local function open_rate() end
local function count_call() end
local function close_rate() end
local function calls_in_use()
  return 0
end

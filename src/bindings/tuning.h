// Numbers that decide when bindings do what: limits of regions, of free lists and of caches. "Guess": chosen
// by reasoning, and not measured since.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dyc::py::tuning {

// ---- regions (region.h)

// Replays of a specialisation until the statements run again and are compared. Guess: 0.1 % of the gain.
inline constexpr uint64_t kRevalidateEvery = 1024;
// Calls of a region of which one is timed, for the report. Two readings of the clock (0.4 us) are 1 % of 64
// calls. The second: until it was decided twice whether the region pays.
inline constexpr uint64_t kTimedCalls = 64, kTimedFirstCalls = 16;
// Specialisations of one region. Guess: a script with more sizes than this has no fixed sequence of ops.
inline constexpr size_t kSpecialisations = 64;
// A region that is replayed less often than kFairHits times for each miss is disabled, after kTrialMisses
// misses. Guess: tracing costs a few times what the statements cost.
inline constexpr uint64_t kFairHits = 4;
inline constexpr uint64_t kTrialMisses = 256;
// Runs of a region until it is asked whether it takes less time than its statements; and runs of these that
// are timed for that. Guess: the fastest of 32 is one that nothing interrupted.
// The window is short, as one that loses does so until the second has passed: with 2048 a stack parser lost
// 14 % in its first 57 steps.
inline constexpr uint64_t kFirstWindow = 512;
inline constexpr uint32_t kPlainRuns = 32;
// Walks with a specialisation until the statements of all that the walk does run again and are compared.
// Guess: as above.
inline constexpr uint64_t kRevalidateWalks = 1024;
// Memos of walks: bytes of all of them; items of a list that tell one from another, and the length up to
// which a list is compared as a whole; and keys of walks that were made once, in a function that has few
// memos, and later. Guesses: 10,000 trees of 40 nodes take 128 MB.
inline constexpr size_t kMemoBytes = 128 << 20, kMemoKeys = 1 << 15, kFirstMemoKeys = 1 << 12;
// Memos below which a function has few; of as many calls nearly all must be replays before these are timed.
// And replays after which they are timed in any case. Guesses.
inline constexpr size_t kFewMemos = 256;
inline constexpr uint64_t kMemoPatience = 1 << 12;
inline constexpr ptrdiff_t kMemoItems = 32;
// Lists inside one another that a memo makes. Guess.
inline constexpr int kMemoNesting = 8;
// Nodes that a memo records as one trace: fewer are not faster, and more would not be shared. Guesses.
inline constexpr uint32_t kLeastStretch = 4, kMostStretch = 1 << 12;
// Characters of a text that a memo keeps, and bytes that what memos keep takes, with its place. Guesses.
inline constexpr ptrdiff_t kMemoText = 256;
inline constexpr size_t kKeptBytes = 104;
// Walks that did not fit, or could not be written down, until no more are. Guess.
inline constexpr uint64_t kMemoFailures = 64;
// Keys of a sample, which says whether calls come again; and samples without any that do until no more are
// looked at: the first calls and 65,000 more. One key in so many is looked at, and twice as many are kept as
// 128,000 calls leave: with hardly more room, some places are full and keys come again unnoticed. Guesses.
inline constexpr uint32_t kMemoSample = 64, kIdleSamples = 96, kKeysPerSample = 32;
inline constexpr size_t kSampledKeys = 1 << 13;
// The part of the time of other ways that walks and replays may take in their trials; and those at which one
// trial is enough, to win or to lose.
inline constexpr double kLeastGain = 0.95, kClearGain = 0.88, kClearLoss = 1.25;
// Calls inside one another that are recorded by one call: 1 KB of the stack each. Guess: trees of sentences
// have 50 levels.
inline constexpr int kWalkDepth = 250;
// Bytes of the stack that they may take, and lists inside one another that they may return. Guesses.
inline constexpr size_t kWalkStack = 512 << 10;
inline constexpr int kWalkNesting = 1000;
// Values of the stack for each of them, before it grows. Guess.
inline constexpr size_t kWalkFrame = 32;
// Arguments of a call that a walk records; calls with more run as they are written. Guess.
inline constexpr size_t kWalkArguments = 8;
// Results that are allocated at a time.
inline constexpr size_t kResultChunk = 256;
// What one call may make, and do: calls, iterations, copied items. What takes longer runs in Python, where it
// can be interrupted and needs no memory. Guesses.
inline constexpr size_t kWalkResults = 1 << 22, kWalkWork = 1 << 20;
// Walks of a function until they are compared with its statements, which is done again after kTrialGrowth
// times as many; and how many turns each way of running has, after those in which Python optimises the
// statements. Guesses.
inline constexpr uint64_t kFirstTrial = 128, kTrialGrowth = 4;
inline constexpr uint32_t kTrialWarmUp = 1, kTrialRounds = 2;
// Trials in which the statements could not be timed until there are no more. Guess.
inline constexpr uint32_t kUntimedTrials = 3;
// Calls and nodes until a turn ends. Measured: replays of a transition parser take 1.1 of the statements'
// time in turns of 16 calls, 0.85 in those of 48, 0.75 in those of 128, and 0.7 where there are none.
inline constexpr uint32_t kTrialCalls = 64, kTrialNodes = 1 << 13;
// Regions and functions asked in a timed run of statements, after which it does not count. Guess.
inline constexpr uint32_t kTimedCallsInside = 1 << 12;
// Calls that were refused until a function that was never recorded by one call is given up; the second: while
// regions still learn. Guesses.
inline constexpr uint64_t kRefusedWalks = 9, kLearningWalks = 1024;
// Nanoseconds that the code around a walk takes, that around a region whose statements run, and that of a
// function which is asked for a walk first, and runs. Measured on Python 3.11, on a machine on which
// resting_region() of hints/call_cost.py gives kMeasuredRegion; the last, and this, are guesses.
inline constexpr double kMeasuredRegion = 150;
inline constexpr int64_t kAroundWalk = 50, kAroundRestingRegion = 160, kAroundAskedFunction = 130;
// Levels that Python may use inside the innermost call: near its limit the statements run. Guess.
inline constexpr int kWalkMargin = 40;
// Calls that run as they are written after one that could not be recorded, which doubles with each: trying
// takes longer. The second: while regions still learn. Guesses.
inline constexpr uint32_t kWalkSkips = 512, kLearningSkips = 15;
// Calls of regions that are given up until it is asked what they take and the others of their function save,
// again and again. Guess: long enough to meet the other branches.
inline constexpr uint64_t kIdleCalls = 1 << 15;
// Times in a row that these take longer until the function gets its code back; the second: while one of the
// others was never met. Guesses: a script may test before it trains, and loses 0.2 s if it never does.
inline constexpr uint32_t kLostLooks = 2, kPatientLooks = 32;
// Nanoseconds that the code around a call takes, and that around a plain run: storing results, testing them,
// and exception handlers. Measured on a parser's step of five ops, which gained nothing.
inline constexpr uint64_t kAroundCall = 100;
inline constexpr int64_t kAroundPlainRun = 120;
// Runs that could not be learned from until a region without specialisations is disabled. Guess.
inline constexpr uint64_t kRefusals = 64;
// Runs with the same value of an index until it becomes a constant. Guess.
inline constexpr uint32_t kRunsUntilConstant = 8;
// Values in the lists that a region reads; reading more would cost more than the statements. Guess.
inline constexpr uint32_t kMostParts = 128;
// Iterations of a loop in one call; then Python looks for signals. At 1 us each, a handler waits 0.3 ms.
inline constexpr size_t kIterations = 256;
// Items of a list that are looked at to see whether releasing it runs code of the script. Guess.
inline constexpr ptrdiff_t kShortList = 16;
// Dicts that are watched for changes (Python 3.12 on). Guess: 64 bytes each.
inline constexpr size_t kWatchedDicts = 4096;
// Items of a dict whose keys are looked at each time, rather than remembering its version; and items that are
// looked at where Python has no versions. Guesses.
inline constexpr ptrdiff_t kSmallDict = 8, kLargeDict = 1024;
// Levels of recursion that rewriting modules may use: it needs about 60.
inline constexpr int kHookDepth = 100;
// Readings of the clock, the shortest of which is what one takes.
inline constexpr int kClockReadings = 64;

// ---- free lists

// Expressions and states that are kept for the next ones, about 40 and 64 bytes each. Guess: those of a
// batch.
inline constexpr int kFreeExpressions = 4096;
inline constexpr size_t kFreeStates = 512;

// ---- computing (compute.cc)

// Milliseconds between two looks for signals: too short for a user to notice.
inline constexpr int64_t kPollEvery = 50;
// Values recorded since the last computation from which the interpreter lock is released. Guess: computing
// fewer takes less time than another thread needs to take the lock and give it back.
inline constexpr uint64_t kReleaseLock = 65536;
// Values of a graph from which on its backward pass goes on in the background. Guess.
inline constexpr uint64_t kBackgroundGraph = 16384;
// Steps before backward passes in the background are first timed against others, steps of each turn, turns of
// both, and steps until the next trial (background_payoff.h). Guesses.
inline constexpr uint64_t kLendingWarmUp = 16, kLendingRest = 1024;
inline constexpr uint32_t kLendingTurn = 4, kLendingTurns = 32;
static_assert(kLendingTurns % 2 == 0, "both ways have as many turns");
// Steps that a trial may lose to the slower way before it ends, and steps until the next one for each of
// those: 0.4 % of them. Beside a busy process a step may take 8 times as long in the background.
inline constexpr double kLendingLoss = 4, kLendingRestOfLoss = 256;
// Steps in the background whose median is compared with that of the other way in the last trial, and how many
// times as long they take when a new trial begins. Guesses.
inline constexpr size_t kLendingWatched = 16;
inline constexpr double kLendingClear = 1.3;
// The part of the time of other steps that those in the background must not exceed: a second core is busy.
inline constexpr double kLendingGain = 0.97;
// Values of a graph whose backward pass can be interrupted: from about 0.1 s of computing on. Guess.
inline constexpr uint64_t kLongGraph = 4 << 20;

// ---- tensors

// topk() sorts by a heap if it is asked for less than one in so many elements. Guess.
inline constexpr size_t kHeapShare = 64;

// ---- messages

// Updates of one growing graph until update() warns. Guess: tests and warm-ups make fewer.
inline constexpr uint32_t kGrowingUpdates = 10;
// Other parameters of a file that a message can name. Guess.
inline constexpr size_t kListedBlocks = 1000;

// ---- arrays (arrays.h)

// Elements of an array up to which a loop over its axes takes less time than NumPy takes to begin.
inline constexpr int64_t kSmallArray = 512;

}  // namespace dyc::py::tuning

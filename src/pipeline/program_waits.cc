#include "pipeline/program_waits.h"

#include <algorithm>

namespace millrace {

void ProgramWaits::Charge(Time now) {
  const double seconds = last_ ? std::max(0.0, std::chrono::duration<double>(now - *last_).count()) : 0;
  seconds_.elapsed += seconds;
  if (waits_for_work_) (*waits_for_work_ ? seconds_.work : seconds_.data) += seconds;
  last_ = now;
}

void ProgramWaits::Call(Time now) {
  const std::lock_guard lock(mutex_);
  Charge(now);
}

void ProgramWaits::Begin(bool for_work, Time now) {
  const std::lock_guard lock(mutex_);
  Charge(now);
  waits_for_work_ = for_work;
}

void ProgramWaits::End(Time now) {
  const std::lock_guard lock(mutex_);
  Charge(now);
  waits_for_work_.reset();
}

ProgramWaits::Seconds ProgramWaits::Take(Time now) {
  const std::lock_guard lock(mutex_);
  if (waits_for_work_) Charge(now);
  return std::exchange(seconds_, {});
}

ProgramWaits::Seconds ProgramWaits::Finish(Time now) {
  const std::lock_guard lock(mutex_);
  if (waits_for_work_) Charge(now);
  last_.reset();
  return std::exchange(seconds_, {});
}

}  // namespace millrace

#include "workers/mpi/mpi_course.hpp"

#include <algorithm>

namespace syncopate {

void MpiCourse::Source::read(void* data, std::size_t size) {
  if (course.calls_.size() - course.next_ < size) throw AnotherCourse("its course is cut off");
  std::copy_n(course.calls_.data() + course.next_, size, static_cast<char*>(data));
  course.next_ += size;
}

void MpiCourse::tell_rows() {
  while (!is_through() && next() == Call::row) {
    ++next_;
    StepRow row;
    StateArchive archive(static_cast<ByteSource&>(source_));
    archive(row);
    if (observer_) observer_->on_row(row);
  }
}

bool MpiCourse::replays(Call call) {
  if (!replays_) return false;
  tell_rows();
  if (!is_through()) return true;
  if (call != position_.call) throw AnotherCourse("it comes to another call than the one at which it had stopped");
  at_end();
  replays_ = false;
  has_just_gone_on_ = true;
  return false;
}

void MpiCourse::take(Call call) {
  if (next() != call) throw AnotherCourse("it makes another call than it had made");
  ++next_;
}

bool MpiCourse::enter(Call call) {
  if (!is_kept()) return true;
  if (std::exchange(has_just_gone_on_, false)) return !position_.is_inside;
  position_ = {.call = call, .is_inside = false, .values = log_->last_number()};
  return true;
}

void MpiCourse::write(ByteSink& out) {
  log_->write_course(out, position_.values);
  StateArchive archive(out);
  archive(position_, calls_);
}

void MpiCourse::follow(ByteSource& in) {
  log_->follow(in);
  StateArchive archive(in);
  archive(position_, calls_);
  next_ = 0;
  replays_ = true;
}

}  // namespace syncopate

// Where the ranks of one machine are in their Python code: asked when the time of a collective is
// up, of ranks that have not come to it and may hang.
#pragma once

#include "collectives/announcements.h"

#include <functional>
#include <memory>
#include <string>

namespace hpu::collectives {

/// Has a thread of its own answer the others with what `where` returns, as long as `announcements`
/// live. It looks at memory now and then, and asks for the GIL only to answer.
void answer_with(
    const std::shared_ptr<Announcements>& announcements, std::function<std::string()> where);

/// Where another rank is, by its own words; empty where it does not answer within a second.
std::string whereabouts(const Announcements& announcements, int rank);

}  // namespace hpu::collectives

// The text of the Metal kernels is in the library, whole and without includes of ours.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "lattice/kernels/metal/text.h"

TEST(MetalText, every_topic_is_complete) {
  for (const auto& [topic, text] : lattice::metal::texts()) {
    EXPECT_FALSE(topic.empty());
    EXPECT_EQ(lattice::metal::text(topic), text);
    EXPECT_EQ(text.find("#include \"lattice/"), std::string_view::npos) << topic;
    EXPECT_EQ(text.find("#pragma once"), std::string_view::npos) << topic;
    EXPECT_EQ(text.back(), '\n') << topic;
  }
}

TEST(MetalText, unknown_topic) {
  EXPECT_THROW(lattice::metal::text("no_such_topic"), std::invalid_argument);
}

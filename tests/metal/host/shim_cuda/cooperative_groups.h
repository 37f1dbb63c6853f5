// MLX's text names this space and uses nothing of it.
#pragma once
namespace cooperative_groups {}

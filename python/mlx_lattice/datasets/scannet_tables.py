"""Tables of ScanNet v2 (Dai et al., 2017) and ScanNet200 (Rozenberszki et al., 2022).

NYU40 ids of the 20 classes, category ids of the 200 classes, and the spaces of the validation
split.
A space is the number in scene0000_00. The test split begins with space 707; the other spaces below
that number are the training split. The three splits have 1201, 312 and 100 scans.
"""

FIRST_TEST_SPACE = 707

NYU40 = 40  # the largest id of the labels; 0 is unannotated

_IDS_20 = "1 2 3 4 5 6 7 8 9 10 11 12 14 16 24 28 33 34 36 39"
_NAMES_20 = """
wall, floor, cabinet, bed, chair, sofa, table, door, window, bookshelf, picture, counter, desk,
curtain, refrigerator, shower curtain, toilet, sink, bathtub, otherfurniture
"""

_IDS_200 = """
1 2 3 4 5 6 7 8 9 10 11 13 14 15 16 17 18 19 21 22 23 24 26 27 28 29 31 32 33 34 35 36 38 39 40
41 42 44 45 46 47 48 49 50 51 52 54 55 56 57 58 59 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
77 78 79 80 82 84 86 87 88 89 90 93 95 96 97 98 99 100 101 102 103 104 105 106 107 110 112 115
116 118 120 121 122 125 128 130 131 132 134 136 138 139 140 141 145 148 154 155 156 157 159 161
163 165 166 168 169 170 177 180 185 188 191 193 195 202 208 213 214 221 229 230 232 233 242 250
261 264 276 283 286 300 304 312 323 325 331 342 356 370 392 395 399 408 417 488 540 562 570 572
581 609 748 776 1156 1163 1164 1165 1166 1167 1168 1169 1170 1171 1172 1173 1174 1175 1176 1178
1179 1180 1181 1182 1183 1184 1185 1186 1187 1188 1189 1190 1191
"""

_NAMES_200 = """
wall, chair, floor, table, door, couch, cabinet, shelf, desk, office chair, bed, pillow, sink,
picture, window, toilet, bookshelf, monitor, curtain, book, armchair, coffee table, box,
refrigerator, lamp, kitchen cabinet, towel, clothes, tv, nightstand, counter, dresser, stool,
cushion, plant, ceiling, bathtub, end table, dining table, keyboard, bag, backpack, toilet
paper, printer, tv stand, whiteboard, blanket, shower curtain, trash can, closet, stairs,
microwave, stove, shoe, computer tower, bottle, bin, ottoman, bench, board, washing machine,
mirror, copier, basket, sofa chair, file cabinet, fan, laptop, shower, paper, person, paper
towel dispenser, oven, blinds, rack, plate, blackboard, piano, suitcase, rail, radiator,
recycling bin, container, wardrobe, soap dispenser, telephone, bucket, clock, stand, light,
laundry basket, pipe, clothes dryer, guitar, toilet paper holder, seat, speaker, column,
bicycle, ladder, bathroom stall, shower wall, cup, jacket, storage bin, coffee maker,
dishwasher, paper towel roll, machine, mat, windowsill, bar, toaster, bulletin board, ironing
board, fireplace, soap dish, kitchen counter, doorframe, toilet paper dispenser, mini fridge,
fire extinguisher, ball, hat, shower curtain rod, water cooler, paper cutter, tray, shower door,
pillar, ledge, toaster oven, mouse, toilet seat cover dispenser, furniture, cart, storage
container, scale, tissue box, light switch, crate, power outlet, decoration, sign, projector,
closet door, vacuum cleaner, candle, plunger, stuffed animal, headphones, dish rack, broom,
guitar case, range hood, dustpan, hair dryer, water bottle, handicap bar, purse, vent, shower
floor, water pitcher, mailbox, bowl, paper bag, alarm clock, music stand, projector screen,
divider, laundry detergent, bathroom counter, object, bathroom vanity, closet wall, laundry
hamper, bathroom stall door, ceiling light, trash bin, dumbbell, stair rail, tube, bathroom
cabinet, cd case, closet rod, coffee kettle, structure, shower head, keyboard piano, case of
water bottles, coat rack, storage organizer, folded chair, fire alarm, power strip, calendar,
poster, potted plant, luggage, mattress
"""


def _by_id(ids: str, names: str) -> dict[int, str]:
    listed = (name.strip() for name in names.replace("\n", " ").split(","))
    return dict(zip(map(int, ids.split()), listed, strict=True))


CLASSES_20 = _by_id(_IDS_20, _NAMES_20)
CLASSES_200 = _by_id(_IDS_200, _NAMES_200)

_VALIDATION = """
11 15 19 25 30 46 50 63 64 77 81 84 86 88 95 100 131 139 144 146 149 153 164 169 187 193 196 203
207 208 217 221 222 231 246 249 251 256 257 277 278 300 304 307 314 316 328 329 334 338 342 343
351 353 354 355 356 357 377 378 382 389 406 412 414 423 426 427 430 432 435 441 458 461 462 474
488 490 494 496 500 518 527 535 549 550 552 553 558 559 565 568 574 575 578 580 583 591 593 595
598 599 606 607 608 609 616 618 621 629 633 643 644 645 647 648 651 652 653 655 658 660 663 664
665 670 671 678 684 685 686 689 690 693 695 696 697 699 700 701 702 704
"""
VALIDATION_SPACES = frozenset(map(int, _VALIDATION.split()))

// Keeps the rows that are seen where they are on the screen while rows above them come and go: the row with the focus
// or under the pointer, else the first one that is seen.
//
// At the very front, with neither pointer nor focus in the list, it follows the front instead: then the question is
// "who is next", and nobody is about to press anything.

export function createAnchor() {
  let top = 0; // the scroll position that is meant
  let lead = 0; // empty space before the first row, where rows went that cannot be scrolled away
  let seen = []; // [id, offset from the upper edge] of the rows on screen, in order
  let isAtFront = true;
  let placed = null; // where this module itself has scrolled to, until the browser reports that
  const engaged = new Set();

  const isHolding = () => !isAtFront || engaged.size > 0;

  return {
    engage: (what) => engaged.add(what),
    disengage(what) {
      engaged.delete(what);
      if (engaged.size === 0 && isAtFront) {
        lead = 0;
        top = 0;
      }
    },
    get isHolding() {
      return isHolding();
    },
    get lead() {
      return lead;
    },
    /** Forget what was seen: the list goes to its front. */
    release() {
      seen = [];
      top = 0;
      lead = 0;
      isAtFront = true;
    },
    /** Somebody scrolled: this is what is meant now. */
    scrolled(scroller) {
      // A browser may report one scrolling of this module twice, or two of them once.
      const isOwn = [placed, top].some((own) => own !== null && Math.abs(scroller.scrollTop - own) < 1);
      placed = null;
      if (isOwn) return;
      top = scroller.scrollTop;
      isAtFront = top < 4;
      seen = [];
    },
    /** Where to scroll, so that the preferred row, or the nearest one that is still there, keeps its place. */
    settle({ rows, height, carried, preferred }) {
      if (isHolding() && seen.length && !carried) {
        const places = new Map(rows.map((row, index) => [row.id, index]));
        const first = Math.max(seen.findIndex(([id]) => id === preferred), 0);
        const nearest = [...seen.slice(first), ...seen.slice(0, first).reverse()];
        const kept = nearest.find(([id]) => places.has(id));
        if (kept) {
          const wanted = places.get(kept[0]) * height - kept[1];
          top = Math.max(wanted, 0);
          lead = Math.max(-wanted, 0);
        }
      }
      const upper = Math.max(0, Math.floor((top - lead) / height));
      if (!carried) {
        seen = rows.slice(upper, upper + 40).map((row, index) => [row.id, lead + (upper + index) * height - top]);
      }
      return { top, lead };
    },
    /** Scroll there, if it is not there yet. */
    place(scroller) {
      if (!scroller || Math.abs(scroller.scrollTop - top) < 1) return;
      const before = scroller.scrollTop;
      scroller.scrollTop = top;
      top = scroller.scrollTop; // at the end of the list it cannot go further
      placed = top === before ? null : top;
    },
  };
}

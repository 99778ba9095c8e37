// What the dashboard uses of Preact, htm and signals, in one file: two copies of Preact would not share their hooks.
export { Fragment, createContext, h, render } from "preact";
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
export { html } from "htm/preact";

import { options } from "preact";

/**
 * Preact leaves what was drawn before with its children and its parent. Some of these are in the new drawing, too, and
 * name their parents, so each drawing would keep all before it: 14 MB a minute of a busy line. Here the former element
 * lets go of both when the new one is complete. `__c` is a component, `__e` the element in the document, `__k` the
 * children of an element, and `__` its parent.
 */
const latest = new WeakMap();
const { diffed } = options;
options.diffed = (element) => {
  const thing = element.__c ?? element.__e;
  if (thing) {
    const before = latest.get(thing);
    if (before && before !== element) before.__k = before.__ = null;
    latest.set(thing, element);
  }
  diffed?.(element);
};

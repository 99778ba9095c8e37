// What the dashboard uses of Preact, htm and signals, in one file: two copies of Preact would not share their hooks.
export { Fragment, createContext, h, render } from "preact";
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
export { html } from "htm/preact";

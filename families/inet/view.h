/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the engine finds the windows of sockets: they are made of records, by inet_peek() and inet_most() of peek.h, which the
 * includer declares. Included before observe/host.h.
 */
#ifndef TOPSTAT_INET_VIEW_H
#define TOPSTAT_INET_VIEW_H

#define ts_object_peek(w, obj, view)                                                      \
	(inet_is_records_at(ts_view_window(view)) ? inet_peek((w), (obj), ts_view_window(view)) : \
						    ts_window_peek((w), (obj) + ts_view_window(view)))
#define ts_object_most(tick, obj, view)                                             \
	(inet_is_records_at(ts_view_window(view)) ? inet_most((obj), ts_view_window(view)) : \
						    ts_window_most(tick, obj, view))
#define inet_is_records_at(at) ((at) & 7)

#endif /* TOPSTAT_INET_VIEW_H */
